"""Decodes an answer by its content type: JSON, or a form as bot libraries send it to Telegram.

The values of a form are strings, with JSON inside for lists and objects. The Bot API takes them
like that, so they are passed on unchanged.
"""

import email.parser
import email.policy
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from forge_jobs import Dead

_MAX_FIELDS: Final = 200


def decode_answer(content_type: str, body: bytes) -> Any:
    """The answer as JSON value. Raises Dead if it cannot be read or uploads a file."""
    match content_type.partition(";")[0].strip().lower():
        case "application/x-www-form-urlencoded":
            return _from_form(body)
        case "multipart/form-data":
            return _from_parts(content_type, body)
        case _:
            return _from_json(body)


def _from_json(body: bytes) -> Any:
    try:
        answer: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise Dead("the answer is not JSON") from None
    if not isinstance(answer, dict):
        raise Dead("the answer is not a JSON object")
    return answer  # pyright: ignore[reportUnknownVariableType]


def _from_form(body: bytes) -> dict[str, Any]:
    try:
        text = body.decode("utf-8")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise Dead("the answer is not a form in UTF-8 with at most 200 fields") from None
    return dict(pairs)


def _from_parts(content_type: str, body: bytes) -> dict[str, Any]:
    head = f"content-type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    form = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    values: dict[str, Any] = {}
    for part in form.iter_parts():
        name = part.get_param("name", header="content-disposition")
        if not isinstance(name, str):
            raise Dead("the answer is a multipart form with a part that has no name")
        if part.get_filename() is not None:
            raise Dead(
                f"the answer uploads a file ({name[:60]}), which an answer cannot do here: use a "
                "URL or a file_id, or call the Bot API from the service"
            )
        data = part.get_payload(decode=True)
        try:
            values[name] = (data if isinstance(data, bytes) else b"").decode("utf-8")
        except UnicodeDecodeError:
            raise Dead(f"{name[:60]} in the answer is not UTF-8") from None
    if not values:
        raise Dead("the answer is not a multipart form")
    return values
