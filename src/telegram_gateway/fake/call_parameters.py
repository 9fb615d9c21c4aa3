"""The parameters of a call, in whichever of the four shapes the Bot API takes them.

Query, form and multipart hold texts, with JSON inside for lists and objects; JSON holds values.
"""

import email.parser
import email.policy
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import parse_qsl

import msgspec

from .refusal import bad

_TRUE: Final = ("true", "yes", "1")


class CallParameters:
    """Reads parameters; what cannot be read is refused."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)

    def has(self, name: str) -> bool:
        """Whether it was given at all."""
        return self.values.get(name) is not None

    def text(self, name: str) -> str:
        """A text; empty when it is not there."""
        found = self.values.get(name)
        return "" if found is None else str(found)

    def whole(self, name: str, default: int | None = None) -> int | None:
        """A whole number."""
        found = self.values.get(name)
        if found is None or found == "":
            return default
        try:
            return int(found)
        except (TypeError, ValueError):
            raise bad(f"invalid parameter {name}: a whole number is expected") from None

    def flag(self, name: str) -> bool:
        """Yes or no; absent means no."""
        return str(self.values.get(name, "")).lower() in _TRUE

    def inside(self, name: str) -> Any:
        """A list or an object, also when it came as text."""
        found = self.values.get(name)
        if not isinstance(found, str):
            return found
        if not found:
            return None
        try:
            return msgspec.json.decode(found)
        except msgspec.MsgspecError:
            raise bad(f"can't parse {name} as JSON") from None

    def record(self, name: str) -> dict[str, Any]:
        """An object; empty when it is not there."""
        found = self.inside(name)
        if found is not None and not isinstance(found, dict):
            raise bad(f"object expected as {name}")
        return cast("dict[str, Any]", found or {})

    def listed(self, name: str) -> list[Any] | None:
        """A list, or None when it is not there."""
        found = self.inside(name)
        if found is not None and not isinstance(found, list):
            raise bad(f"array expected as {name}")
        return cast("list[Any] | None", found)


def read_call_parameters(query: str, content_type: str, body: bytes) -> CallParameters:
    """What a request says; the body counts more than the query."""
    values: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    kind = content_type.partition(";")[0].strip().lower()
    if not body:
        return CallParameters(values)
    match kind:
        case "application/json":
            values |= _from_json(body)
        case "application/x-www-form-urlencoded":
            values |= dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        case "multipart/form-data":
            values |= _from_parts(content_type, body)
        case _:
            pass
    return CallParameters(values)


def _from_json(body: bytes) -> dict[str, Any]:
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise bad("can't parse JSON object") from None
    if not isinstance(found, dict):
        raise bad("a JSON object is expected")
    return cast("dict[str, Any]", found)


def _from_parts(content_type: str, body: bytes) -> dict[str, Any]:
    """Fields as text; of a file only its name and size, since nobody asks for more here."""
    head = f"content-type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    whole = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    values: dict[str, Any] = {}
    for part in whole.iter_parts():
        name = part.get_param("name", header="content-disposition")
        if not isinstance(name, str):
            continue
        data = part.get_payload(decode=True)
        found = data if isinstance(data, bytes) else b""
        file = part.get_filename()
        if file is None:
            values[name] = found.decode("utf-8", "replace")
        else:
            values[name] = f"attach:{file}:{len(found)}"
    return values
