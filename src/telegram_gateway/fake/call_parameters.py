"""Parses the parameters of a call, in each of the four formats the Bot API accepts.

Query, form and multipart contain strings, with JSON inside for lists and objects; JSON contains
values.
"""

import email.parser
import email.policy
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import parse_qsl

import msgspec

from .refusal import bad_request

_TRUE: Final = ("true", "yes", "1")


class CallParameters:
    """Typed access to parameters; invalid values raise a 400 Refusal."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)

    def has(self, name: str) -> bool:
        """Whether the parameter is present."""
        return self.values.get(name) is not None

    def text(self, name: str) -> str:
        """A string; empty if absent."""
        found = self.values.get(name)
        return "" if found is None else str(found)

    def integer(self, name: str, default: int | None = None) -> int | None:
        """An integer."""
        found = self.values.get(name)
        if found is None or found == "":
            return default
        try:
            return int(found)
        except (TypeError, ValueError):
            raise bad_request(f"invalid parameter {name}: a whole number is expected") from None

    def flag(self, name: str) -> bool:
        """A boolean; False if absent."""
        return str(self.values.get(name, "")).lower() in _TRUE

    def json_value(self, name: str) -> Any:
        """A list or an object; a string is decoded as JSON."""
        found = self.values.get(name)
        if not isinstance(found, str):
            return found
        if not found:
            return None
        try:
            return msgspec.json.decode(found)
        except msgspec.MsgspecError:
            raise bad_request(f"can't parse {name} as JSON") from None

    def object_value(self, name: str) -> dict[str, Any]:
        """An object; empty if absent."""
        found = self.json_value(name)
        if found is not None and not isinstance(found, dict):
            raise bad_request(f"object expected as {name}")
        return cast("dict[str, Any]", found or {})

    def array(self, name: str) -> list[Any] | None:
        """A list; None if absent."""
        found = self.json_value(name)
        if found is not None and not isinstance(found, list):
            raise bad_request(f"array expected as {name}")
        return cast("list[Any] | None", found)


def read_call_parameters(query: str, content_type: str, body: bytes) -> CallParameters:
    """Parse a request; the body takes precedence over the query."""
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
        raise bad_request("can't parse JSON object") from None
    if not isinstance(found, dict):
        raise bad_request("a JSON object is expected")
    return cast("dict[str, Any]", found)


def _from_parts(content_type: str, body: bytes) -> dict[str, Any]:
    """Multipart fields as strings; of a file only its name and size."""
    head = f"content-type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    values: dict[str, Any] = {}
    for part in message.iter_parts():
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
