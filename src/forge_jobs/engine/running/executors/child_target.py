"""Finds the handler of a kind in a child process, by importing the module that holds it."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, Protocol, runtime_checkable

from forge_jobs.core.errors import UnknownKind
from forge_jobs.core.job import NewJob
from forge_jobs.engine.running.context import HandlerEnqueuer
from forge_jobs.engine.running.rate_limit import RateLimiter
from forge_jobs.engine.running.registry import Handler
from forge_jobs.store.store import Store

from .child_wire import Target

MAIN_NAME: Final = "__forge_main__"


@runtime_checkable
class Application(Protocol):
    """What a Forge object offers to the contexts of its child processes."""

    @property
    def enqueuer(self) -> HandlerEnqueuer: ...
    def handler(self, kind: str) -> Handler | None: ...
    def request(self, kind: str, payload: Any) -> NewJob: ...
    def limiter(self) -> RateLimiter: ...
    def ready(self) -> Store: ...


@dataclass(frozen=True, slots=True)
class FoundHandler:
    """A handler, and the application it belongs to; None for an object that only knows handlers."""

    handler: Handler
    application: Application | None


def find(target: Target) -> FoundHandler:
    """The handler of ``target.kind``. Raises what the import raises, or UnknownKind.

    Looks for an object with ``handler(kind)`` among the module's own names first, then in every
    module that was loaded: an application may keep its Forge object elsewhere.
    """
    found = _FOUND.get(target)
    if found is None:
        found = _FOUND[target] = _search(target)
    return found


def _search(target: Target) -> FoundHandler:
    module = _loaded(target)
    for value in _candidates(module):
        handler = value.handler(target.kind)
        if isinstance(handler, Handler):
            return FoundHandler(handler, value if isinstance(value, Application) else None)
    raise UnknownKind(
        f"no Forge object in {target.module or target.file!r} knows kind {target.kind!r}: "
        "keep the Forge object and its tasks in module variables"
    )


def _loaded(target: Target) -> ModuleType:
    if target.module is not None:
        return importlib.import_module(target.module)
    module = sys.modules.get(MAIN_NAME)
    if module is not None:
        return module
    # A name of its own: code under ``if __name__ == "__main__"`` must not run here.
    assert target.file is not None
    spec = importlib.util.spec_from_file_location(MAIN_NAME, target.file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{target.file} cannot be loaded as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MAIN_NAME] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[MAIN_NAME]
        raise
    return module


def _candidates(module: ModuleType) -> Iterator[Any]:
    yield from filter(_knows_kinds, list(vars(module).values()))
    for other in list(sys.modules.values()):
        # Some libraries put other objects than modules there.
        names = getattr(other, "__dict__", {})
        yield from filter(_knows_kinds, filter(_is_ours, list(names.values())))


def _knows_kinds(value: object) -> bool:
    return not isinstance(value, type) and callable(getattr(value, "handler", None))


def _is_ours(value: object) -> bool:
    # Objects of other libraries may answer to any name, with any effect.
    origins = [getattr(kind, "__module__", "") for kind in type(value).__mro__]
    return any(isinstance(origin, str) and origin.startswith("forge_jobs.") for origin in origins)


_FOUND: dict[Target, FoundHandler] = {}
