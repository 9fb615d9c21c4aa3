"""Values, errors and arguments of steps as JSON, and back."""

import inspect
import typing
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, Final, get_args, get_origin
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from forge_jobs.core import payload
from forge_jobs.core.custom_types import from_json
from forge_jobs.core.errors import BadPayload, BadStep, PayloadTooLarge
from forge_jobs.core.steps import MAX_VALUE_BYTES, fingerprint_of

_SCALARS: Final = (str, int, bool, float, type(None))
_PLAIN: Final = (Any, None, type(None), object)


class StoredError(Struct, frozen=True):
    """A declared error as it is stored. ``declared`` is the class of ``errors=`` that it fell
    under. ``args`` is None where they have no JSON form."""

    error: str
    declared: str
    message: str
    args: list[Any] | None = None


class StepFunction:
    """What a run needs to know of a step's function: whether it is a coroutine function, and how
    its values are read."""

    __slots__ = ("_decode", "_returns", "is_async")

    def __init__(self, function: Callable[..., Any]) -> None:
        plain: Any = inspect.unwrap(function)
        self.is_async = inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(
            type(plain).__call__
        )
        self._returns = _return_type(plain)
        self._decode: Callable[[bytes], Any] = payload.decode
        if self._returns is not Any:
            try:
                self._decode = msgspec.json.Decoder(self._returns, dec_hook=_custom).decode
            except (TypeError, NameError):
                self._returns = Any

    def stored(self, value: Any, shown: str) -> tuple[bytes, Any]:
        """The value as it is stored, and as every run gets it: the one of the first run is decoded
        from what is stored, unless that is the same anyway."""
        data = encoded(value, f"step {shown!r}: its value")
        if type(value) in _SCALARS and self._returns in (Any, type(value)):
            return data, value
        return data, self.read(data, shown)

    def read(self, data: bytes | None, shown: str) -> Any:
        """A stored value as the function's return annotation says, or BadStep."""
        try:
            return self._decode(b"null" if data is None else data)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            name = inspect.formatannotation(self._returns).replace("typing.", "")
            raise BadStep(
                f"step {shown!r}: its stored value does not fit the function's return annotation "
                f"{name}: {error}. Let the annotation accept the old form as well, give the step "
                "another name, or retry the job from this step"
            ) from error


def _custom(wanted: Any, value: Any) -> Any:
    """Values of types that msgspec does not know; ``object`` takes any value as it is."""
    return value if wanted is object else from_json(wanted, value)


_known: "WeakKeyDictionary[Any, StepFunction]" = WeakKeyDictionary()


def step_function(function: Callable[..., Any]) -> StepFunction:
    """The description of a function; that of a named function is made once."""
    bare: Any = function
    while isinstance(bare, partial):
        bare = bare.func
    bare = getattr(bare, "__func__", bare)
    try:
        found = _known.get(bare)
        if found is None:
            found = _known[bare] = StepFunction(bare)
    except TypeError:
        # Not hashable, or without weak references.
        return StepFunction(bare)
    return found


def name_of(function: Any) -> str:
    """The name of a step that was given none; BadStep for a function without one."""
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise BadStep(
            f"{function!r} has no name to store its value under: ctx.step('a name', function, ...)"
        )
    return name


def encoded(value: object, what: str) -> bytes:
    """The JSON of a value; BadPayload or PayloadTooLarge that say what it is."""
    try:
        return payload.encode(value, limit=MAX_VALUE_BYTES, what=what)
    except PayloadTooLarge as error:
        raise BadPayload(
            f"{what} has {error.size:,} bytes and the limit is {error.limit:,}: store the data "
            "elsewhere and return a reference"
        ) from None


def fingerprint(args: tuple[object, ...], kwargs: Mapping[str, object]) -> int | None:
    """A number for the arguments of a step; None if they have no JSON form."""
    data = payload.comparable((args, kwargs) if kwargs else (args,))
    return None if data is None else fingerprint_of(data)


def stored_error(error: Exception, declared: tuple[type[Exception], ...]) -> bytes:
    """A declared error as JSON."""
    under = next(cls for cls in declared if isinstance(error, cls))
    args = payload.comparable(error.args)
    kept = StoredError(
        _path(type(error)),
        _path(under),
        str(error),
        None if args is None else msgspec.json.decode(args),
    )
    return msgspec.json.encode(kept)


def error_of(data: bytes | None, declared: tuple[type[Exception], ...], shown: str) -> Exception:
    """The error that was stored, as one of the classes that are declared now or of those derived
    from them; classes are never imported because of what is stored."""
    kept = msgspec.json.decode(data or b"", type=StoredError)
    classes = {_path(cls): cls for cls in _with_derived(declared)}
    cls = classes.get(kept.error) or classes.get(kept.declared)
    if cls is None:
        raise BadStep(
            f"step {shown!r} ended with {kept.error}: {kept.message}, which errors= does not name "
            "any more: name it again, or retry the job from this step"
        )
    if kept.args is not None:
        try:
            return cls(*kept.args)
        except Exception:
            pass
    error = cls.__new__(cls)
    error.args = (kept.message,)
    return error


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _with_derived(classes: tuple[type[Exception], ...]) -> Iterator[type[Exception]]:
    seen: set[type[Exception]] = set()
    stack = list(reversed(classes))
    while stack:
        cls = stack.pop()
        if cls not in seen:
            seen.add(cls)
            yield cls
            stack.extend(cls.__subclasses__())


def _return_type(function: Any) -> Any:
    target = function if hasattr(function, "__annotations__") else type(function).__call__
    if not getattr(target, "__annotations__", None):
        return Any
    try:
        found = typing.get_type_hints(target, include_extras=True).get("return", Any)
    except Exception:
        return Any
    if get_origin(found) in (Awaitable, Coroutine) and get_args(found):
        found = get_args(found)[-1]
    return Any if found in _PLAIN else found
