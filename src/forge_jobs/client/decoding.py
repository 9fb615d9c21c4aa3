"""Decodes stored JSON into a call: arguments are read by the function's own annotations."""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from forge_jobs.core import payload
from forge_jobs.core.custom_types import from_json
from forge_jobs.core.errors import BadOption
from forge_jobs.core.kind_signature import ArgumentMismatch, KindSignature

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
        "_parameters",
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
        self._parameters = parameters
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
        """Call ``function`` with the stored arguments, or raise ArgumentMismatch."""
        if self._takes_nothing and data == _EMPTY:
            return function()
        try:
            if self._only_positional:
                arguments = msgspec.structs.astuple(self._decode(data))
                named: dict[str, Any] = {}
            else:
                arguments, named = self._arrange(data)
        except msgspec.MsgspecError as error:
            raise self._mismatch(data, error) from error
        if self._wants_context:
            arguments, named = self._with_context(arguments, named, make_context())
        return function(*arguments, **named)

    def signature(self) -> KindSignature:
        """What this function takes, as other processes read it."""
        named = [item for item in self._parameters.stored if item.kind is not ParameterKind.EXTRA]
        required = [item for item in named if item.required and item.kind is not ParameterKind.REST]
        return KindSignature(
            required=tuple(item.name for item in required),
            optional=tuple(item.name for item in named if item not in required),
            extra=self._extra is not None,
            types=_types_fingerprint(self._parameters),
        )

    def _mismatch(self, data: bytes, error: Exception) -> ArgumentMismatch:
        try:
            names = tuple(msgspec.json.decode(data, type=dict[str, msgspec.Raw]))
        except msgspec.MsgspecError:
            names = None
        misfit = None if names is None else self.signature().misfit(names)
        if misfit is None:
            text = f"task {self._kind!r}: the stored arguments do not fit the function: {error}"
            return ArgumentMismatch(text, names=names, by_value=True)
        text = f"task {self._kind!r}: {misfit}; this worker's version takes {self._parameters}"
        return ArgumentMismatch(text, names=names, by_value=False)

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


def _types_fingerprint(parameters: Parameters) -> str:
    """Equal for functions that read the same values: from the JSON schemas of the annotations, so
    that a field added to a struct or model changes it, and a default of the function does not."""
    stored = sorted(parameters.stored, key=lambda item: item.name)
    try:
        schemas = msgspec.json.schema_components(
            [item.annotation for item in stored], schema_hook=_model_schema
        )
        text = msgspec.json.encode(
            [[item.name for item in stored], *schemas], order="deterministic"
        )
    except Exception:
        # A type without a schema: its name must do.
        text = str(parameters).encode()
    return hashlib.sha256(text).hexdigest()[:12]


def _model_schema(wanted: Any) -> dict[str, Any]:
    describe = getattr(wanted, "model_json_schema", None)
    return {"title": wanted.__name__} if describe is None else describe()


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
