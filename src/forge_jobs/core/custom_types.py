"""Types of arguments that msgspec does not know: which can be stored and read back, and how.

Paths, IP addresses and deques have a JSON form of their own; pydantic models bring theirs. Every
other class is refused when a task is registered. Only a model can change on its way through JSON
(a ``SecretStr`` is dumped as asterisks, an excluded field not at all), so only arguments with a
model in them are compared after the round trip.
"""

from collections import deque
from collections.abc import Iterator
from enum import Flag
from typing import Any, Final, get_args, get_origin

import msgspec
from msgspec import inspect as type_nodes

from .errors import BadOption
from .payload import TEXT_TYPES

_SUPPORTED: Final = (*TEXT_TYPES, deque)


def from_json(wanted: Any, value: Any) -> Any:
    """Convert to a type that msgspec does not know; TypeError or ValueError when it cannot be."""
    cls: Any = get_origin(wanted) or wanted
    if issubclass(cls, TEXT_TYPES):
        return value if isinstance(value, cls) else cls(value)
    if issubclass(cls, deque):
        items = [Any, *get_args(wanted)][-1]
        return deque(msgspec.convert(list(value), list[items], dec_hook=from_json))
    validate = getattr(cls, "model_validate", None)
    if not callable(validate):
        raise TypeError(f"type {cls.__name__} cannot be read from JSON")
    try:
        return validate(value)
    except ValueError as error:
        # pydantic's text repeats the refused values, and arguments may be secret.
        raise ValueError(_without_values(error)) from None


def check_annotation(annotation: Any, *, where: str) -> None:
    """BadOption for an annotation whose values cannot be stored as JSON and read back."""
    for node in _nodes(annotation):
        if isinstance(node, type_nodes.EnumType) and issubclass(node.cls, Flag):
            raise BadOption(
                f"{where} is a {node.cls.__name__}, a Flag, whose combinations cannot be read "
                "back: annotate it as int and pass its .value"
            )
        if not isinstance(node, type_nodes.CustomType) or _is_supported(node.cls):
            continue
        name = node.cls.__name__
        if callable(getattr(node.cls, "get_secret_value", None)):
            raise BadOption(
                f"{where} is a {name}, which hides its value when it is stored: pass a reference "
                "to where the secret is kept, or annotate it as str and pass get_secret_value(), "
                "which stores it in clear"
            )
        raise BadOption(
            f"{where} has the type {name}, which cannot be stored as JSON and read back: use a "
            "type of JSON, datetime, UUID, Decimal, Enum, Path, an IP address, a dataclass, a "
            "msgspec Struct or a pydantic model, and make the object in the function"
        )


def can_change(annotation: Any) -> bool:
    """Whether values of this type may differ after they were stored and read back."""
    return any(
        isinstance(node, type_nodes.CustomType) and not issubclass(node.cls, _SUPPORTED)
        for node in _nodes(annotation)
    )


def is_same(before: Any, after: Any) -> bool:
    """Whether a value survived the round trip."""
    if before == after:
        return True
    # The private attributes of a model are not stored and may differ.
    return type(before) is type(after) and is_model(before) and _fields(before) == _fields(after)


def changed_fields(before: Any, after: Any) -> list[str]:
    """The fields of a model that did not survive; empty for another value."""
    if not (is_model(before) and is_model(after)):
        return []
    old, new = _fields(before), _fields(after)
    return [name for name in old if name not in new or old[name] != new[name]]


def is_model(value: Any) -> bool:
    """Whether this is a pydantic model."""
    return callable(getattr(value, "model_validate", None))


def _fields(model: Any) -> dict[str, Any]:
    return model.__dict__


def _is_supported(cls: type[Any]) -> bool:
    return issubclass(cls, _SUPPORTED) or callable(getattr(cls, "model_validate", None))


def _nodes(annotation: Any) -> Iterator[Any]:
    """All nodes of msgspec's description of a type, each once."""
    try:
        stack: list[Any] = [type_nodes.type_info(annotation)]
    except Exception:
        return  # not a type msgspec can describe: the decoder says so
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(node)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(node, (type_nodes.Type, type_nodes.Field)) and id(node) not in seen:
            seen.add(id(node))
            stack.extend(getattr(node, name) for name in node.__struct_fields__)
            yield node


def _without_values(error: Any) -> str:
    if not callable(getattr(error, "errors", None)):
        return f"{type(error).__name__} while reading a model"
    lines = [
        f"{'.'.join(str(part) for part in item['loc']) or 'model'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return "; ".join(lines)
