"""From call arguments to stored JSON, checked against the function's signature.

One-by-one enqueueing runs through ``encode``: for plain values of the annotated types it does one
dictionary, one type comparison per value and one encoding. Everything else takes the careful way,
which ends with a proof that the worker will be able to read what is stored.
"""

import types
from collections.abc import Callable, Mapping
from typing import Any, Union, get_args, get_origin

import msgspec

from forge_jobs.core import payload
from forge_jobs.core.errors import BadArguments, BadPayload, PayloadTooLarge

from .decoding import ArgumentDecoder, from_json, result_reader
from .parameters import Parameter, ParameterKind, Parameters, Unresolved, read, type_text

_SCALARS = (str, int, float, bool, type(None))
NOTHING = b"{}"
_encode = msgspec.json.Encoder().encode


class _Plan:
    """Everything about a function that can be known before the first call."""

    __slots__ = (
        "contexts", "exact", "extra", "extra_type", "known", "parameters", "positional",
        "positional_only", "reader", "required", "rest", "result", "total", "types", "uneven",
    )  # fmt: skip

    def __init__(self, parameters: Parameters, kind: str) -> None:
        stored = parameters.stored
        named = [
            item for item in stored if item.place not in (ParameterKind.REST, ParameterKind.EXTRA)
        ]
        self.parameters = parameters
        self.contexts = tuple(item for item in parameters.all if item.is_context)
        self.positional = tuple(
            item.name for item in named if item.place is not ParameterKind.KEYWORD
        )
        self.positional_only = frozenset(
            item.name for item in named if item.place is ParameterKind.POSITIONAL_ONLY
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
        self.uneven = bool(self.rest or self.extra or self.positional_only)
        self.reader = ArgumentDecoder(parameters, kind=kind)
        self.result = result_reader(parameters.returns)


class Signature:
    """How the arguments of one task travel.

    Annotations that cannot be evaluated yet (a class further down in the module) are looked at
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
        self._plan: _Plan | None = None
        try:
            self._resolve()
        except Unresolved:
            pass

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, limit: int) -> bytes:
        """The payload of a call, or BadArguments, BadPayload, PayloadTooLarge."""
        plan = self._plan or self._resolve()
        if not (args or kwargs or plan.required):
            return NOTHING
        if plan.uneven:
            return self._encode_with_care(plan, self._gather(plan, args, kwargs), limit)
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
        return self._encode_with_care(plan, values, limit)

    def encode_mapping(self, values: Mapping[str, Any], *, limit: int) -> bytes:
        """The payload of a call whose arguments are given by name, ``*rest`` under its own."""
        plan = self._plan or self._resolve()
        for name in values:
            known = name in plan.known or (plan.rest is not None and name == plan.rest.name)
            if not known and plan.extra is None:
                raise self._unexpected(plan, name, {})
        self._check_required(plan, values)
        return self._encode_with_care(plan, dict(values), limit)

    def call(
        self, function: Callable[..., Any], data: bytes, make_context: Callable[[], object]
    ) -> Any:
        """Call ``function`` with stored arguments; a Context is made only if it takes one."""
        plan = self._plan or self._resolve()
        return plan.reader.call(function, data, make_context)

    def fill_in(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], make_context: Callable[[], object]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a plain call, with a Context where the caller gave none."""
        plan = self._plan or self._resolve()
        for item in plan.contexts:
            given = item.name in kwargs or (
                len(args) > item.index and isinstance(args[item.index], self._contexts)
            )
            if given:
                continue
            if item.place is not ParameterKind.KEYWORD and len(args) >= item.index:
                args = (*args[: item.index], make_context(), *args[item.index :])
            else:
                kwargs = {**kwargs, item.name: make_context()}
        return args, kwargs

    def read_result(self, data: bytes) -> Any:
        """A stored result, by the function's return annotation."""
        return (self._plan or self._resolve()).result(data)

    def takes(self, name: str) -> bool:
        """Whether a call with this one named argument fits; True while that is not known yet."""
        plan = self._plan
        if plan is None:
            return True
        return (name in plan.known or plan.extra is not None) and set(plan.required) <= {name}

    def has(self, name: str) -> bool:
        """Whether it takes an argument of this name; True while that is not known yet."""
        plan = self._plan
        return plan is None or name in plan.known or plan.extra is not None

    @property
    def wants_context(self) -> bool:
        """Whether the function takes a Context."""
        return bool((self._plan or self._resolve()).contexts)

    def __str__(self) -> str:
        return str((self._plan or self._resolve()).parameters)

    def _resolve(self) -> _Plan:
        parameters = read(
            self._function, kind=self._kind, contexts=self._contexts, scope=self._scope
        )
        self._plan = _Plan(parameters, self._kind)
        self._scope = None
        return self._plan

    def _gather(self, plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        count = len(plan.positional)
        if len(args) > count and plan.rest is None:
            raise self._too_many(plan, len(args))
        values: dict[str, Any] = dict(zip(plan.positional, args, strict=False))
        taken = set(values)
        if plan.rest is not None:
            taken.add(plan.rest.name)
            if len(args) > count:
                values[plan.rest.name] = list(args[count:])
        for name, value in kwargs.items():
            stray = name not in plan.known and plan.extra is None
            if stray or name in taken or name in plan.positional_only:
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

    def _encode_with_care(self, plan: _Plan, values: dict[str, Any], limit: int) -> bytes:
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
                raise self._misfit(name, wanted, error) from error
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
        return data

    @property
    def _what(self) -> str:
        return f"task {self._kind!r}: the payload"

    def _check_required(self, plan: _Plan, values: Mapping[str, Any]) -> None:
        missing = [name for name in plan.required if name not in values]
        if missing:
            listed = ", ".join(map(repr, missing))
            raise BadArguments(
                f"task {self._kind!r}: missing {_plural('argument', missing)} {listed}; "
                f"it takes {plan.parameters}"
            )

    def _too_many(self, plan: _Plan, given: int) -> BadArguments:
        return BadArguments(
            f"task {self._kind!r}: {given} positional arguments were given, "
            f"it takes {plan.parameters}"
        )

    def _unexpected(self, plan: _Plan, name: str, values: Mapping[str, Any]) -> BadArguments:
        task = f"task {self._kind!r}"
        if name in values:
            return BadArguments(f"{task}: argument {name!r} is given twice")
        if any(name == item.name for item in plan.contexts):
            return BadArguments(
                f"{task}: argument {name!r} is the Context of the run; the worker fills it in"
            )
        return BadArguments(
            f"{task}: unexpected argument {name!r}; it takes {plan.parameters}. "
            "Options such as delay or priority go into using(...)"
        )

    def _misfit(self, name: str, wanted: Any, error: Exception) -> BadArguments:
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


def _only(stored: tuple[Parameter, ...], place: ParameterKind) -> Parameter | None:
    return next((item for item in stored if item.place is place), None)


def _exact(annotation: Any) -> tuple[type, ...]:
    """The types whose values fit without a closer look."""
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
