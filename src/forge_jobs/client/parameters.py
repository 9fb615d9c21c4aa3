"""Reads the parameters of a task's function: names, types, defaults, and which is the Context."""

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Union, get_args, get_origin

from forge_jobs.core.errors import BadOption

_CONTEXT_NAMES = frozenset({"Context", "JobCtx"})


class ParameterKind(Enum):
    """How a parameter receives its value."""

    POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
    POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
    REST = inspect.Parameter.VAR_POSITIONAL
    KEYWORD = inspect.Parameter.KEYWORD_ONLY
    EXTRA = inspect.Parameter.VAR_KEYWORD


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. ``index`` is its position in the function's own list."""

    name: str
    kind: ParameterKind
    index: int
    annotation: Any
    required: bool
    default: object
    is_context: bool

    def __str__(self) -> str:
        stars = {ParameterKind.REST: "*", ParameterKind.EXTRA: "**"}.get(self.kind, "")
        annotation = "" if self.annotation is Any else f": {type_text(self.annotation)}"
        return f"{stars}{self.name}{annotation}" + ("" if self.required or stars else " = ...")


@dataclass(frozen=True, slots=True)
class Parameters:
    """All parameters of a function and what it returns."""

    all: tuple[Parameter, ...]
    returns: Any

    @property
    def stored(self) -> tuple[Parameter, ...]:
        """The parameters whose values are stored with the job: all but the Context."""
        return tuple(item for item in self.all if not item.is_context)

    def __str__(self) -> str:
        return "(" + ", ".join(map(str, self.stored)) + ")"


class Unresolved(BadOption):
    """An annotation names something that is not defined, or not yet."""


def read(
    function: Callable[..., object],
    *,
    kind: str,
    contexts: tuple[type, ...],
    scope: Mapping[str, object] | None = None,
) -> Parameters:
    """The parameters of ``function``; ``scope`` holds names local to where it was defined.

    Raises Unresolved when an annotation cannot be evaluated: it may be defined further down.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise BadOption(f"task {kind!r}: {function!r} has no readable signature") from error
    target = function if hasattr(function, "__annotations__") else getattr(function, "__call__")  # noqa: B009, B004
    hints = _hints(target, kind, scope)
    found: list[Parameter] = []
    for index, (name, raw) in enumerate(signature.parameters.items()):
        annotation = hints.get(name, Any)
        found.append(
            Parameter(
                name=name,
                kind=ParameterKind(raw.kind),
                index=index,
                annotation=Any if annotation is object else annotation,
                required=raw.default is raw.empty,
                default=raw.default,
                is_context=_is_context(annotation, contexts),
            )
        )
    return Parameters(all=tuple(found), returns=hints.get("return", Any))


def check_injected(item: Parameter, kind: str) -> None:
    """BadOption for a parameter that FastAPI would fill in: nobody could pass it to a job."""
    marks = (*get_args(item.annotation)[1:], item.default)
    if any(type(mark).__module__ == "fastapi.params" for mark in marks):
        raise BadOption(
            f"task {kind!r}: parameter {item.name!r} has {type_text(item.annotation)}: put @inject "
            "of forge_jobs.integrations.fastapi below @forge.task for Depends; other parameters "
            "of requests are none of jobs"
        )


def type_text(annotation: Any) -> str:
    """A type as it is written in source code."""
    return inspect.formatannotation(annotation).replace("typing.", "")


def _hints(function: Any, kind: str, scope: Mapping[str, object] | None) -> dict[str, Any]:
    local = dict(scope or {})
    try:
        return typing.get_type_hints(function, localns=local, include_extras=True)
    except Exception:
        # One annotation that cannot be evaluated must not fail the others: evaluate each alone.
        module = getattr(inspect.unwrap(function), "__globals__", {})
        return {
            name: _hint(name, raw, kind, module, local)
            for name, raw in function.__annotations__.items()
        }


def _hint(
    name: str, raw: object, kind: str, module: dict[str, Any], local: dict[str, object]
) -> object:
    alone = types.SimpleNamespace(__annotations__={name: raw})
    try:
        hints = typing.get_type_hints(alone, module, local, include_extras=True)
        return hints[name]
    except Exception as error:
        if isinstance(raw, str) and raw.rpartition(".")[2].strip() in _CONTEXT_NAMES:
            return _ByName
        if name == "return":
            return Any
        raise Unresolved(
            f"task {kind!r}: the annotation {raw!r} of parameter {name!r} cannot be evaluated "
            f"({error}): import or define it where the function is defined, not only under "
            "TYPE_CHECKING"
        ) from error


class _ByName:
    """Stands for a Context that is imported under TYPE_CHECKING only."""


def _is_context(annotation: Any, contexts: tuple[type, ...]) -> bool:
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_is_context(option, contexts) for option in get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, (*contexts, _ByName))
