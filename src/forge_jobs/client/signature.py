"""Encodes call arguments as JSON, checked against the function's signature.

``encode`` is on the hot path of a single enqueue. For plain values of the annotated types it makes
one dictionary, one type comparison per value and one encoding. Everything else takes the checked
path, which also decodes what it encoded, to prove that the worker will be able to read it.
"""

import types
from collections.abc import Callable, Mapping
from typing import Any, Union, get_args, get_origin

import msgspec

from forge_jobs.core import payload
from forge_jobs.core.custom_types import (
    can_change,
    changed_fields,
    check_annotation,
    from_json,
    is_same,
)
from forge_jobs.core.declaration import ArgumentNames
from forge_jobs.core.errors import BadArguments, BadPayload, PayloadTooLarge
from forge_jobs.core.kind_signature import KindSignature

from .decoding import ArgumentDecoder, result_reader
from .parameters import (
    Parameter,
    ParameterKind,
    Parameters,
    Unresolved,
    check_injected,
    read,
    type_text,
)

_SCALARS = (str, int, float, bool, type(None))
NOTHING = b"{}"
_encode = msgspec.json.Encoder().encode


class _SignaturePlan:
    """What is derived from a function's signature once, before the first call."""

    __slots__ = (
        "can_change",
        "contexts",
        "exact",
        "extra",
        "extra_type",
        "known",
        "needs_gather",
        "parameters",
        "positional",
        "positional_only",
        "reader",
        "required",
        "rest",
        "result",
        "total",
        "types",
    )  # fmt: skip

    def __init__(self, parameters: Parameters, kind: str) -> None:
        stored = parameters.stored
        named = [
            item for item in stored if item.kind not in (ParameterKind.REST, ParameterKind.EXTRA)
        ]
        self.parameters = parameters
        self.contexts = tuple(item for item in parameters.all if item.is_context)
        self.positional = tuple(
            item.name for item in named if item.kind is not ParameterKind.KEYWORD
        )
        self.positional_only = frozenset(
            item.name for item in named if item.kind is ParameterKind.POSITIONAL_ONLY
        )
        self.known = frozenset(item.name for item in named)
        self.required = tuple(item.name for item in named if item.required)
        self.total = len(named)
        self.rest = _only(stored, ParameterKind.REST)
        self.extra = _only(stored, ParameterKind.EXTRA)
        self.types: dict[str, Any] = {item.name: item.annotation for item in named}
        if self.rest is not None:
            self.types[self.rest.name] = list[self.rest.annotation]
        self.exact: dict[str, tuple[type, ...]] = {
            name: _exact(annotation) for name, annotation in self.types.items()
        }
        for item in stored:
            check_injected(item, kind)
        unusual = [item for item in stored if item.annotation not in (Any, None, *_SCALARS)]
        for item in unusual:
            if item.required:
                check_annotation(item.annotation, where=f"task {kind!r}: parameter {item.name!r}")
        # Arguments that are compared after a round trip; ``**extra`` under its own name.
        self.can_change = frozenset(item.name for item in unusual if can_change(item.annotation))
        self.needs_gather = bool(self.rest or self.extra or self.positional_only)
        self.reader = ArgumentDecoder(parameters, kind=kind)
        self.result = result_reader(parameters.returns)


class Signature:
    """Encodes, checks and decodes the arguments of one task.

    Annotations that cannot be evaluated yet (a class further down in the module) are evaluated
    again on first use.
    """

    __slots__ = ("_contexts", "_function", "_kind", "_plan", "_scope")

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        kind: str,
        contexts: tuple[type, ...] = (),
        scope: Mapping[str, object] | None = None,
    ) -> None:
        self._function = function
        self._kind = kind
        self._contexts = contexts
        self._scope = scope
        self._plan: _SignaturePlan | None = None
        try:
            self._resolve()
        except Unresolved:
            pass

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, limit: int) -> bytes:
        """The payload of a call, or BadArguments, BadPayload, PayloadTooLarge."""
        plan = self._plan or self._resolve()
        if not (args or kwargs or plan.required):
            return NOTHING
        if plan.needs_gather:
            return self._encode_checked(plan, self._gather(plan, args, kwargs), limit)
        if len(args) > len(plan.positional):
            raise self._too_many(plan, len(args))
        values: dict[str, Any] = {}
        for name, value in zip(plan.positional, args):  # noqa: B905 -- fewer arguments are fine
            values[name] = value
        if kwargs:
            values.update(kwargs)
            if len(values) < len(args) + len(kwargs):
                raise self._unexpected(
                    plan, next(n for n in plan.positional if n in kwargs), kwargs
                )
        if len(values) < plan.total:
            self._check_required(plan, values)
        exact = plan.exact
        try:
            for name, value in values.items():
                if type(value) not in exact[name]:
                    break
            else:
                return self._encode_plain(values, limit)
        except KeyError:
            pass  # an argument that the function does not take
        for name in kwargs:
            if name not in exact:
                raise self._unexpected(plan, name, {})
        return self._encode_checked(plan, values, limit)

    def encode_mapping(self, values: Mapping[str, Any], *, limit: int) -> bytes:
        """The payload of a call whose arguments are given by name, ``*rest`` under its own name."""
        plan = self._plan or self._resolve()
        for name in values:
            known = name in plan.known or (plan.rest is not None and name == plan.rest.name)
            if not known and plan.extra is None:
                raise self._unexpected(plan, name, {})
        self._check_required(plan, values)
        return self._encode_checked(plan, dict(values), limit)

    def call(
        self, function: Callable[..., Any], data: bytes, make_context: Callable[[], object]
    ) -> Any:
        """Call ``function`` with stored arguments; a Context is made only if it takes one."""
        plan = self._plan or self._resolve()
        return plan.reader.call(function, data, make_context)

    def fill_in(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], make_context: Callable[[], object]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a plain call, with a Context where the caller passed none."""
        plan = self._plan or self._resolve()
        for item in plan.contexts:
            given = item.name in kwargs or (
                len(args) > item.index and isinstance(args[item.index], self._contexts)
            )
            if given:
                continue
            if item.kind is not ParameterKind.KEYWORD and len(args) >= item.index:
                args = (*args[: item.index], make_context(), *args[item.index :])
            else:
                kwargs = {**kwargs, item.name: make_context()}
        return args, kwargs

    def read_result(self, data: bytes) -> Any:
        """Decode a stored result by the function's return annotation."""
        return (self._plan or self._resolve()).result(data)

    def takes(self, name: str) -> bool:
        """Whether a call with this one named argument fits; True while unresolved."""
        plan = self._plan
        if plan is None:
            return True
        return (name in plan.known or plan.extra is not None) and set(plan.required) <= {name}

    def has(self, name: str) -> bool:
        """Whether it takes an argument of this name; True while annotations are unresolved."""
        plan = self._plan
        return plan is None or name in plan.known or plan.extra is not None

    @property
    def argument_names(self) -> ArgumentNames:
        """The names of its arguments, for those who have not the code."""
        plan = self._plan or self._resolve()
        names = [item.name for item in plan.parameters.stored if item is not plan.extra]
        return ArgumentNames(tuple(names), plan.required, plan.extra is not None)

    @property
    def wants_context(self) -> bool:
        """Whether the function takes a Context."""
        return bool((self._plan or self._resolve()).contexts)

    def published(self) -> KindSignature:
        """What the function takes, as other processes read it."""
        return (self._plan or self._resolve()).reader.signature()

    def __str__(self) -> str:
        return str((self._plan or self._resolve()).parameters)

    def _resolve(self) -> _SignaturePlan:
        parameters = read(
            self._function, kind=self._kind, contexts=self._contexts, scope=self._scope
        )
        self._plan = _SignaturePlan(parameters, self._kind)
        self._scope = None
        return self._plan

    def _gather(
        self, plan: _SignaturePlan, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        count = len(plan.positional)
        if len(args) > count and plan.rest is None:
            raise self._too_many(plan, len(args))
        values: dict[str, Any] = dict(zip(plan.positional, args, strict=False))
        given = set(values)
        if plan.rest is not None:
            given.add(plan.rest.name)
            if len(args) > count:
                values[plan.rest.name] = list(args[count:])
        for name, value in kwargs.items():
            unknown = name not in plan.known and plan.extra is None
            if unknown or name in given or name in plan.positional_only:
                raise self._unexpected(plan, name, values)
            values[name] = value
        self._check_required(plan, values)
        return values

    def _encode_plain(self, values: dict[str, Any], limit: int) -> bytes:
        try:
            data = _encode(values)
        except ValueError as error:
            raise self._not_json(values, error) from error
        if len(data) > limit or b"\\u0000" in data or b"null" in data:
            payload.check(data, limit=limit, what=self._what, plain=values)
        return data

    def _encode_checked(self, plan: _SignaturePlan, values: dict[str, Any], limit: int) -> bytes:
        types_by_name, scalars = plan.types, plan.exact
        for name, value in values.items():
            if type(value) in scalars.get(name, ()):
                continue
            wanted = types_by_name.get(name)
            if wanted is None:
                wanted = plan.extra.annotation if plan.extra is not None else Any
            if wanted is Any:
                continue
            try:
                msgspec.convert(value, wanted, dec_hook=from_json)
            except msgspec.ValidationError as error:
                raise self._wrong_type(name, wanted, error) from error
        try:
            data = payload.encode(values, limit=limit, what=self._what)
        except PayloadTooLarge:
            raise
        except BadPayload as error:
            raise self._not_json(values, error) from error
        try:
            plan.reader.check(data)
        except msgspec.ValidationError as error:
            raise BadArguments(
                f"task {self._kind!r}: the worker could not read these arguments back: {error}; "
                f"it takes {plan.parameters}"
            ) from error
        if plan.can_change:
            self._check_unchanged(plan, values, data)
        return data

    def _check_unchanged(self, plan: _SignaturePlan, values: dict[str, Any], data: bytes) -> None:
        """BadArguments for an argument that the worker would get changed."""
        stored = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        for name, value in values.items():
            wanted = plan.types.get(name)
            if wanted is None and plan.extra is not None:
                wanted = plan.extra.annotation
            if name not in plan.can_change and (
                name in plan.types or plan.extra is None or plan.extra.name not in plan.can_change
            ):
                continue
            before = msgspec.convert(value, wanted, dec_hook=from_json)
            after = msgspec.json.decode(stored[name], type=wanted, dec_hook=from_json)
            if is_same(before, after):
                continue
            fields = ", ".join(map(repr, changed_fields(before, after)))
            raise BadArguments(
                f"task {self._kind!r}: argument {name!r} would reach the worker changed"
                f"{f' in {fields}' if fields else ''}: its JSON form does not hold the whole value "
                "(a SecretStr is dumped as asterisks). Pass a reference to where the secret is "
                "kept, or plain values"
            )

    @property
    def _what(self) -> str:
        return f"task {self._kind!r}: the payload"

    def _check_required(self, plan: _SignaturePlan, values: Mapping[str, Any]) -> None:
        missing = [name for name in plan.required if name not in values]
        if missing:
            listed = ", ".join(map(repr, missing))
            raise BadArguments(
                f"task {self._kind!r}: missing {_plural('argument', missing)} {listed}; "
                f"it takes {plan.parameters}"
            )

    def _too_many(self, plan: _SignaturePlan, given: int) -> BadArguments:
        return BadArguments(
            f"task {self._kind!r}: {given} positional arguments were given, "
            f"it takes {plan.parameters}"
        )

    def _unexpected(
        self, plan: _SignaturePlan, name: str, values: Mapping[str, Any]
    ) -> BadArguments:
        task = f"task {self._kind!r}"
        if name in values:
            return BadArguments(f"{task}: argument {name!r} is given twice")
        if any(name == item.name for item in plan.contexts):
            return BadArguments(
                f"{task}: argument {name!r} is the Context of the run; the worker passes it"
            )
        return BadArguments(
            f"{task}: unexpected argument {name!r}; it takes {plan.parameters}. "
            "Options such as delay or priority go into using(...)"
        )

    def _wrong_type(self, name: str, wanted: Any, error: Exception) -> BadArguments:
        text = str(error)
        return BadArguments(
            f"task {self._kind!r}: argument {name!r} must be {type_text(wanted)}: "
            f"{text[:1].lower()}{text[1:]}"
        )

    def _not_json(self, values: Mapping[str, Any], error: Exception) -> BadPayload:
        for name, value in values.items():
            try:
                payload.encode(value, what=f"task {self._kind!r}: argument {name!r}")
            except PayloadTooLarge:
                continue
            except BadPayload as found:
                return found
        return BadPayload(f"{self._what} cannot be stored as JSON: {error}")


def _only(stored: tuple[Parameter, ...], kind: ParameterKind) -> Parameter | None:
    return next((item for item in stored if item.kind is kind), None)


def _exact(annotation: Any) -> tuple[type, ...]:
    """The types whose values fit without a conversion."""
    if annotation is Any:
        return _SCALARS
    if annotation is None:
        return (type(None),)
    if annotation in _SCALARS:
        return (annotation,)
    if get_origin(annotation) in (Union, types.UnionType):
        options = [_exact(option) for option in get_args(annotation)]
        return tuple(item for option in options for item in option)
    return ()


def _plural(word: str, items: list[str]) -> str:
    return word if len(items) == 1 else word + "s"
