"""``load_app``: imports the Forge object that ``pkg.module:object`` names."""

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

    Raises BadAppPath with the part that failed. The working directory is the first entry of the
    module search path, as with ``python -m``.
    """
    module_name, colon, name = path.partition(":")
    here = os.getcwd()
    if sys.path[:1] not in ([here], [""]):
        sys.path.insert(0, here)
    module = _import(path, module_name)
    if not colon:
        return _only_forge(path, module)
    value: object = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise BadAppPath(f"{path}: {module_name} has no {name!r}{_suggestion(module)}")
        value = getattr(value, part)
    if not isinstance(value, Forge):
        raise BadAppPath(f"{path} is {_describe(value)}, not a Forge object{_suggestion(module)}")
    return value


def _import(path: str, module_name: str) -> ModuleType:
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
    # Without the frames of the import system, which do not concern the application.
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    lines = "".join(traceback.format_list(frames)).splitlines()[-_TRACE_LINES:]
    lines += "".join(traceback.format_exception_only(error)).splitlines()
    return "\n".join(lines)


def _only_forge(path: str, module: ModuleType) -> Forge:
    found = _forge_objects(module)
    if len(found) == 1:
        return next(iter(found.values()))
    raise BadAppPath(f"{path} names no object: write {path}:object{_suggestion(module)}")


def _forge_objects(module: ModuleType) -> dict[str, Forge]:
    # An object with two names counts once.
    by_identity = {
        id(value): (name, value) for name, value in vars(module).items() if isinstance(value, Forge)
    }
    return dict(by_identity.values())


def _suggestion(module: ModuleType) -> str:
    names = [f"{module.__name__}:{name}" for name in _forge_objects(module)]
    if not names:
        return f"; {module.__name__} holds no Forge object at all"
    return f"; did you mean {' or '.join(names)}?"


def _describe(value: object) -> str:
    if isinstance(value, type) or callable(value):
        return f"the {'class' if isinstance(value, type) else 'function'} itself"
    return f"a {type(value).__name__}"
