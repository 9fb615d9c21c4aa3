"""From ``pkg.module:object`` to the Forge object it names, or an error that says what is wrong."""

import importlib
import os
import sys
import traceback
from types import ModuleType
from typing import Final

from forge_jobs.app import Forge
from forge_jobs.core.errors import BadAppPath

_TRACE_LINES: Final = 8


def load_app(path: str) -> Forge:
    """The Forge object at ``path``; without ``:object`` the only one of the module.

    Raises BadAppPath that names the part that failed. The working directory comes first in the
    search for modules, as it does for ``python -m``.
    """
    module_name, colon, name = path.partition(":")
    here = os.getcwd()
    if sys.path[:1] not in ([here], [""]):
        sys.path.insert(0, here)
    module = _imported(path, module_name)
    if not colon:
        return _only_forge(path, module)
    value: object = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise BadAppPath(f"{path}: {module_name} has no {name!r}{_instead(module)}")
        value = getattr(value, part)
    if not isinstance(value, Forge):
        raise BadAppPath(f"{path} is {_described(value)}, not a Forge object{_instead(module)}")
    return value


def _imported(path: str, module_name: str) -> ModuleType:
    if not module_name or module_name.startswith(".") or "/" in module_name:
        raise BadAppPath(f"{path!r} is no application path: write pkg.module:object")
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(missing + "."):
            raise BadAppPath(
                f"{path}: there is no module {missing!r} (looked in {os.getcwd()} and on the "
                "path of this Python); run the command in the folder that holds it"
            ) from None
        raise BadAppPath(f"{path}: importing it failed:\n{_last_lines(error)}") from None
    except (Exception, SystemExit) as error:
        raise BadAppPath(f"{path}: importing it failed:\n{_last_lines(error)}") from None


def _last_lines(error: BaseException) -> str:
    # The frames of the import machinery say nothing about the application.
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    lines = "".join(traceback.format_list(frames)).splitlines()[-_TRACE_LINES:]
    lines += "".join(traceback.format_exception_only(error)).splitlines()
    return "\n".join(lines)


def _only_forge(path: str, module: ModuleType) -> Forge:
    found = _forges(module)
    if len(found) == 1:
        return next(iter(found.values()))
    raise BadAppPath(f"{path} names no object: write {path}:object{_instead(module)}")


def _forges(module: ModuleType) -> dict[str, Forge]:
    # One object under two names is one object.
    by_identity = {
        id(value): (name, value) for name, value in vars(module).items() if isinstance(value, Forge)
    }
    return dict(by_identity.values())


def _instead(module: ModuleType) -> str:
    names = [f"{module.__name__}:{name}" for name in _forges(module)]
    if not names:
        return f"; {module.__name__} holds no Forge object at all"
    return f"; did you mean {' or '.join(names)}?"


def _described(value: object) -> str:
    if isinstance(value, type) or callable(value):
        return f"the {'class' if isinstance(value, type) else 'function'} itself"
    return f"a {type(value).__name__}"
