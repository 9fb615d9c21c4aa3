"""``@inject``: dependencies of FastAPI in the parameters of a task, solved for each job.

As for a request: each dependency is called once per job (``use_cache``), its own dependencies
first, and what stands after a ``yield`` runs when the job has ended, innermost last. In an ``async
def`` task plain dependencies run in a thread; a ``def`` task can have plain ones only.
"""

import functools
import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar, get_args

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi.concurrency import run_in_threadpool
from fastapi.params import Depends

from forge_jobs.client import parameters
from forge_jobs.client.parameters import Parameter, ParameterKind
from forge_jobs.client.task import Task
from forge_jobs.core.errors import BadOption
from forge_jobs.engine.running.context import Context

R = TypeVar("R")
# Applications whose ``dependency_overrides`` hold in this process.
APPLICATIONS: Final[list[Any]] = []
_CONTEXT: Final = "forge_context"


class _Form(Enum):
    VALUE = "def"
    COROUTINE = "async def"
    GENERATOR = "def with yield"
    ASYNC_GENERATOR = "async def with yield"


_AWAITED: Final = (_Form.COROUTINE, _Form.ASYNC_GENERATOR)


@dataclass(frozen=True, slots=True)
class _Dependency:
    """What has to be known to call a dependency: ``needs`` are its own, ``contexts`` its
    parameters that take the Context of the job."""

    call: Callable[..., Any]
    form: _Form
    needs: Mapping[str, Depends]
    contexts: tuple[str, ...]


def inject(function: Callable[..., R]) -> Callable[..., R]:
    """Make a function with ``Annotated[…, Depends(…)]`` parameters a task's function.

    Put it right below ``@forge.task``. The other parameters are the arguments of the job. A plain
    call may pass dependencies by name.

    >>> from typing import Annotated
    >>> from fastapi import Depends
    >>> from forge_jobs.integrations.fastapi import inject
    >>> @forge.task
    ... @inject
    ... def book(number: int, clerk: Annotated[str, Depends(lambda: "ada")]) -> str:
    ...     return f"{number} by {clerk}"
    >>> job = book.enqueue(7)
    >>> book(7, clerk="grace")
    '7 by grace'
    """
    if isinstance(function, Task):
        raise BadOption(f"put @inject below @forge.task, not above it (task {function.kind!r})")
    name = getattr(function, "__qualname__", repr(function))
    nested = "<locals>" in name
    scope = dict(sys._getframe(1).f_locals) if nested else None  # pyright: ignore[reportPrivateUsage]
    read = parameters.read(function, kind=name, contexts=(Context,), scope=scope)
    needs = {item.name: wanted for item in read.all if (wanted := _depends(item)) is not None}
    if not needs:
        raise BadOption(f"@inject: {name} has no parameter with Depends(...): leave @inject out")
    is_async = inspect.iscoroutinefunction(function)
    for wanted in needs.values():
        _check(_call_of(wanted), name, is_async=is_async)
    own = next((item.name for item in read.all if item.is_context), None)
    call = _Injected(function, needs, own)
    wrapper: Any = _async_wrapper(call) if is_async else _wrapper(call)
    functools.update_wrapper(wrapper, function)
    _show(wrapper, function, [item for item in read.all if item.name not in needs], read, own)
    return wrapper


class _Injected:
    """One function and its dependencies."""

    def __init__(
        self, function: Callable[..., Any], needs: Mapping[str, Depends], context: str | None
    ) -> None:
        self.function = function
        self.needs = needs
        self._context = context
        self._signature = inspect.signature(function)
        kept = [item for name, item in self._signature.parameters.items() if name not in needs]
        self._arguments = self._signature.replace(parameters=kept)

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[str, Any], "_Values"]:
        """The arguments by name, also dependencies that the caller gave, and an empty set of
        values."""
        given = {name: kwargs.pop(name) for name in self.needs if name in kwargs}
        hidden = kwargs.pop(_CONTEXT, None)
        bound = self._arguments.bind(*args, **kwargs)
        context = hidden if self._context is None else bound.arguments.get(self._context)
        return {**bound.arguments, **given}, _Values(context)

    def call(self, arguments: dict[str, Any]) -> Any:
        """Call the function with all its arguments."""
        order = [name for name in self._signature.parameters if name in arguments]
        made = {name: arguments[name] for name in order}
        bound = inspect.BoundArguments(self._signature, made)
        return self.function(*bound.args, **bound.kwargs)


class _Values:
    """The dependencies of one job that were called already."""

    def __init__(self, context: object) -> None:
        self._context = context
        self._made: dict[Any, Any] = {}

    def solve(self, wanted: Depends, stack: ExitStack) -> Any:
        """The value of a dependency, for a ``def`` task."""
        found = _plan(_override(_call_of(wanted)))
        if wanted.use_cache and found.call in self._made:
            return self._made[found.call]
        if found.form in _AWAITED:
            raise BadOption(f"{_name(found.call)} is awaited: a `def` task cannot depend on it")
        arguments = {name: self.solve(need, stack) for name, need in found.needs.items()}
        made = self._bound(found, arguments)
        is_plain = found.form is _Form.VALUE
        value = made() if is_plain else stack.enter_context(contextmanager(made)())
        self._made.setdefault(found.call, value)
        return value

    async def asolve(self, wanted: Depends, stack: AsyncExitStack) -> Any:
        """The value of a dependency, for an ``async def`` task."""
        found = _plan(_override(_call_of(wanted)))
        if wanted.use_cache and found.call in self._made:
            return self._made[found.call]
        arguments = {name: await self.asolve(need, stack) for name, need in found.needs.items()}
        made = self._bound(found, arguments)
        match found.form:
            case _Form.VALUE:
                value = await run_in_threadpool(made)
            case _Form.COROUTINE:
                value = await made()
            case _Form.GENERATOR:
                manager = _in_thread(contextmanager(made)())
                value = await stack.enter_async_context(manager)
            case _Form.ASYNC_GENERATOR:
                value = await stack.enter_async_context(asynccontextmanager(made)())
        self._made.setdefault(found.call, value)
        return value

    def _bound(self, found: _Dependency, arguments: dict[str, Any]) -> Callable[[], Any]:
        return functools.partial(
            found.call, **arguments, **dict.fromkeys(found.contexts, self._context)
        )


@asynccontextmanager
async def _in_thread(manager: AbstractContextManager[Any]) -> AsyncGenerator[Any]:
    """Enter and leave a manager in threads. Unlike FastAPI's own it is left after a cancel as well:
    a timeout of the job must not keep a connection open."""
    # As in FastAPI, leaving waits for no free thread: whoever holds them may wait for this.
    limiter = CapacityLimiter(1)
    value = await run_in_threadpool(manager.__enter__)
    try:
        yield value
    except BaseException as error:
        leave = functools.partial(manager.__exit__, type(error), error, error.__traceback__)
        if not await run_sync(leave, limiter=limiter):
            raise
    else:
        await run_sync(manager.__exit__, None, None, None, limiter=limiter)


def _wrapper(injected: _Injected) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        arguments, values = injected.split(args, kwargs)
        failure: BaseException | None = None
        with ExitStack() as stack:
            try:
                for name, wanted in injected.needs.items():
                    if name not in arguments:
                        arguments[name] = values.solve(wanted, stack)
                return injected.call(arguments)
            except BaseException as error:
                failure = error
                raise
        # A dependency caught the error and did not raise it again: the job has failed even so.
        raise failure

    return run


def _async_wrapper(injected: _Injected) -> Callable[..., Any]:
    async def run(*args: Any, **kwargs: Any) -> Any:
        arguments, values = injected.split(args, kwargs)
        failure: BaseException | None = None
        async with AsyncExitStack() as stack:
            try:
                for name, wanted in injected.needs.items():
                    if name not in arguments:
                        arguments[name] = await values.asolve(wanted, stack)
                return await injected.call(arguments)
            except BaseException as error:
                failure = error
                raise
        raise failure

    return run


def _show(
    wrapper: Any, function: Callable[..., Any], kept: list[Parameter], read: Any, own: str | None
) -> None:
    """Give the wrapper the signature that a task shall have: without the dependencies, with a
    Context."""
    signature = inspect.signature(function)
    hints: dict[str, Any] = {item.name: item.annotation for item in kept}
    shown = [signature.parameters[item.name].replace(annotation=hints[item.name]) for item in kept]
    if own is None:
        hints[_CONTEXT] = Context
        hidden = inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=Context)
        at = len(shown) - (1 if kept and kept[-1].kind is ParameterKind.EXTRA else 0)
        shown.insert(at, hidden)
    wrapper.__signature__ = signature.replace(parameters=shown, return_annotation=read.returns)
    wrapper.__annotations__ = {**hints, "return": read.returns}


def _depends(parameter: Parameter) -> Depends | None:
    """The ``Depends`` of a parameter, with what it calls."""
    found = [item for item in get_args(parameter.annotation)[1:] if isinstance(item, Depends)]
    if isinstance(parameter.default, Depends):
        found.append(parameter.default)
    if not found:
        return None
    wanted = found[-1]
    if wanted.dependency is not None:
        return wanted
    annotated = get_args(parameter.annotation)
    kind = annotated[0] if annotated else parameter.annotation
    return Depends(kind, use_cache=wanted.use_cache)


def _call_of(wanted: Depends) -> Callable[..., Any]:
    assert wanted.dependency is not None
    return wanted.dependency


def _override(call: Callable[..., Any]) -> Callable[..., Any]:
    for app in APPLICATIONS:
        found = app.dependency_overrides.get(call)
        if found is not None:
            return found
    return call


def _check(call: Callable[..., Any], task: str, *, is_async: bool) -> None:
    """BadOption for a dependency that a job cannot have, or one of its own."""
    found = _plan(call)
    if found.form in _AWAITED and not is_async:
        raise BadOption(
            f"task {task}: its dependency {_name(call)} is `async def`, the task is `def`: "
            "make the task `async def`, or the dependency `def`"
        )
    for wanted in found.needs.values():
        _check(_call_of(wanted), task, is_async=is_async)


@functools.cache
def _plan(call: Callable[..., Any]) -> _Dependency:
    needs: dict[str, Depends] = {}
    contexts: list[str] = []
    for item in _parameters(call):
        wanted = _depends(item)
        if wanted is not None:
            needs[item.name] = wanted
        elif item.is_context:
            contexts.append(item.name)
        elif item.kind not in (ParameterKind.REST, ParameterKind.EXTRA) and _needs_request(item):
            raise BadOption(
                f"the dependency {_name(call)} takes {item.name!r} from a request, and a job has "
                "none: it may take a Context, other dependencies, and what has a default"
            )
    return _Dependency(call, _form(call), needs, tuple(contexts))


def _parameters(call: Any) -> list[Parameter]:
    """The parameters that a call of a function, class or object has to be given."""
    if isinstance(call, functools.partial):
        left = _parameters(call.func)[len(call.args) :]
        return [item for item in left if item.name not in call.keywords]
    if not inspect.isclass(call):
        return list(parameters.read(call, kind=_name(call), contexts=(Context,)).all)
    if call.__init__ is object.__init__:
        return []
    return list(parameters.read(call.__init__, kind=_name(call), contexts=(Context,)).all[1:])


def _needs_request(item: Parameter) -> bool:
    return item.required or type(item.default).__module__.startswith("fastapi.")


def _form(call: Any) -> _Form:
    while isinstance(call, functools.partial):
        call = call.func
    if inspect.isclass(call):
        return _Form.VALUE
    if not inspect.isroutine(call):
        call = type(call).__call__
    if inspect.isasyncgenfunction(call):
        return _Form.ASYNC_GENERATOR
    if inspect.iscoroutinefunction(call):
        return _Form.COROUTINE
    return _Form.GENERATOR if inspect.isgeneratorfunction(call) else _Form.VALUE


def _name(call: Any) -> str:
    return getattr(call, "__qualname__", repr(call))
