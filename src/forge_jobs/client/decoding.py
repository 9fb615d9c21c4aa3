"""Decodes stored JSON into a call: arguments are read by the function's own annotations."""

from collections.abc import Callable
from typing import Any

import msgspec

from forge_jobs.core import payload
from forge_jobs.core.errors import BadArguments, BadOption

from .custom_types import from_json
from .parameters import Parameter, ParameterKind, Parameters

_EMPTY = b"{}"
_PLAIN = (str, int, float, bool, bytes, type(None))


class ArgumentDecoder:
    """Decodes the arguments of one function.

    The payload is a JSON object of arguments by name; ``*rest`` is a list under its own name, and
    the items of ``**extra`` are members of the object like the others.
    """

    __slots__ = (
        "_contexts",
        "_decode",
        "_extra",
        "_extra_type",
        "_keywords",
        "_kind",
        "_only_positional",
        "_positional_count",
        "_rest",
        "_struct",
        "_takes_nothing",
        "_wants_context",
    )  # fmt: skip

    def __init__(self, parameters: Parameters, *, kind: str) -> None:
        stored = parameters.stored
        extra = next((item for item in stored if item.kind is ParameterKind.EXTRA), None)
        fields = [item for item in stored if item.kind is not ParameterKind.EXTRA]
        in_order = [item for item in fields if item.kind in _IN_ORDER]
        self._kind = kind
        self._contexts = [item for item in parameters.all if item.is_context]
        self._positional_count = len(in_order)
        self._rest = any(item.kind is ParameterKind.REST for item in fields)
        self._keywords = [item.name for item in fields if item.kind is ParameterKind.KEYWORD]
        self._extra = None if extra is None else frozenset(item.name for item in fields)
        self._extra_type = None if extra is None else dict[str, extra.annotation]
        self._struct = _struct(in_order + _others(fields), kind, strict=extra is None)
        self._decode = msgspec.json.Decoder(self._struct, dec_hook=from_json).decode
        self._takes_nothing = not parameters.all
        self._only_positional = not (self._keywords or self._rest or extra or self._contexts)
        self._wants_context = bool(self._contexts)

    @property
    def wants_context(self) -> bool:
        """Whether the function takes a Context."""
        return self._wants_context

    def call(
        self, function: Callable[..., Any], data: bytes, make_context: Callable[[], object]
    ) -> Any:
        """Call ``function`` with the stored arguments, or raise BadArguments."""
        if self._takes_nothing and data == _EMPTY:
            return function()
        try:
            if self._only_positional:
                arguments = msgspec.structs.astuple(self._decode(data))
                named: dict[str, Any] = {}
            else:
                arguments, named = self._arrange(data)
        except msgspec.MsgspecError as error:
            raise BadArguments(
                f"task {self._kind!r}: the stored arguments do not fit the function: {error}"
            ) from error
        if self._wants_context:
            arguments, named = self._with_context(arguments, named, make_context())
        return function(*arguments, **named)

    def check(self, data: bytes) -> None:
        """Raise msgspec's ValidationError when ``call`` could not read these arguments."""
        if self._extra is None:
            self._decode(data)
        else:
            self._arrange(data)

    def _arrange(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        extra: dict[str, Any] = {}
        if self._extra is None:
            held: Any = self._decode(data)
        else:
            plain = msgspec.json.decode(data, type=dict[str, Any])
            known = {name: plain.pop(name) for name in self._extra if name in plain}
            held = msgspec.convert(known, self._struct, dec_hook=from_json)
            extra = msgspec.convert(plain, self._extra_type, dec_hook=from_json)
        values = msgspec.structs.astuple(held)
        count = self._positional_count
        arguments, others = values[:count], values[count:]
        if self._rest:
            arguments, others = (*arguments, *others[0]), others[1:]
        return arguments, {**dict(zip(self._keywords, others, strict=True)), **extra}

    def _with_context(
        self, arguments: tuple[Any, ...], named: dict[str, Any], context: object
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        for item in self._contexts:
            if item.kind in _IN_ORDER:
                arguments = (*arguments[: item.index], context, *arguments[item.index :])
            else:
                named = {**named, item.name: context}
        return arguments, named


_IN_ORDER = (ParameterKind.POSITIONAL_ONLY, ParameterKind.POSITIONAL)


def _others(fields: list[Parameter]) -> list[Parameter]:
    rest = [item for item in fields if item.kind is ParameterKind.REST]
    return rest + [item for item in fields if item.kind is ParameterKind.KEYWORD]


def _struct(fields: list[Parameter], kind: str, *, strict: bool) -> type[msgspec.Struct]:
    specs: list[Any] = []
    for item in fields:
        if item.kind is ParameterKind.REST:
            specs.append((item.name, list[item.annotation], msgspec.field(default_factory=list)))
        elif item.required:
            specs.append((item.name, item.annotation))
        else:
            specs.append((item.name, item.annotation, _default(item.default)))
    try:
        made = msgspec.defstruct(
            "Arguments", specs, kw_only=True, frozen=True, forbid_unknown_fields=strict
        )
        msgspec.json.Decoder(made, dec_hook=from_json)
    except TypeError as error:
        raise BadOption(
            f"task {kind!r}: its annotations cannot be read from JSON: {error}"
        ) from error
    return made


def _default(value: object) -> Any:
    if isinstance(value, _PLAIN):
        return msgspec.field(default=value)
    # The same object as in a plain call of the function.
    return msgspec.field(default_factory=lambda: value)


def result_reader(returns: Any) -> Callable[[bytes], Any]:
    """A decoder for stored results: by the return annotation where it fits, else as plain JSON."""
    if returns in (Any, None, type(None)):
        return payload.decode
    try:
        typed = msgspec.json.Decoder(returns, dec_hook=from_json).decode
    except (TypeError, NameError):
        return payload.decode

    def read(data: bytes) -> Any:
        try:
            return typed(data)
        except msgspec.MsgspecError:
            return payload.decode(data)

    return read
