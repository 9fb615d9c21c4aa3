"""The methods that send something else than text, and answers to queries other than callbacks.

Files are not stored: a file is known by its name and size, or by the file_id or URL that was sent.
"""

import hashlib
from collections.abc import Callable
from typing import Any, Final, cast

from .call_parameters import CallParameters
from .refusal import bad_request
from .world import FakeBot, Method, ReceivedCall

AddMessage = Callable[[FakeBot, CallParameters, ReceivedCall, dict[str, Any]], Any]
MAX_CAPTION: Final = 1_024
_SIZES: Final = {"width": 320, "height": 240}
# What the object of each kind has besides its file.
_MEDIA: Final[dict[str, dict[str, Any]]] = {
    "photo": _SIZES,
    "audio": {"duration": 1},
    "document": {},
    "video": {**_SIZES, "duration": 1},
    "animation": {**_SIZES, "duration": 1},
    "voice": {"duration": 1},
    "video_note": {"length": 240, "duration": 1},
    "sticker": {**_SIZES, "type": "regular", "is_animated": False, "is_video": False},
}
_WITHOUT_CAPTION: Final = ("video_note", "sticker")
_GROUPED: Final = ("photo", "video", "document", "audio")
_DICE: Final = {"🎲": 6, "🎯": 6, "🏀": 5, "⚽": 5, "🎳": 6, "🎰": 64}


class MediaMethods:
    """``add`` checks the chat, stores a message with these fields in it, and returns it."""

    def __init__(self, add: AddMessage) -> None:
        self._add = add
        self.methods: dict[str, Method] = {
            **{f"send{kind.replace('_', '')}": self._sender(kind) for kind in _MEDIA},
            "sendmediagroup": self._send_group,
            "sendlocation": self._send_location,
            "sendvenue": self._send_venue,
            "sendcontact": self._send_contact,
            "sendpoll": self._send_poll,
            "senddice": self._send_dice,
            "answerinlinequery": self._answer_inline,
            "answershippingquery": _answerer("shipping_query_id", "ok"),
            "answerprecheckoutquery": _answerer("pre_checkout_query_id", "ok"),
        }

    def _sender(self, kind: str) -> Method:
        async def send(bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
            fields = _media_fields(kind, given.values.get(kind), given)
            if kind not in _WITHOUT_CAPTION:
                fields |= caption_fields(given.text("caption"))
            return self._add(bot, given, call, fields)

        return send

    async def _send_group(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        listed = given.array("media") or []
        if not 2 <= len(listed) <= 10:
            raise bad_request("there must be 2-10 items in the media group")
        found: list[Any] = []
        group = _short_hash(str(listed))
        for item in map(_object, listed):
            kind = str(item.get("type"))
            if kind not in _GROUPED:
                raise bad_request("type of a media group item is unknown")
            fields = _media_fields(kind, item.get("media"), given)
            fields |= caption_fields(str(item.get("caption") or ""))
            found.append(self._add(bot, given, call, {**fields, "media_group_id": group}))
        return found

    async def _send_location(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        return self._add(bot, given, call, {"location": _location(given)})

    async def _send_venue(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        venue = {"location": _location(given), "title": _required(given, "title")}
        venue["address"] = _required(given, "address")
        return self._add(bot, given, call, {"venue": venue, "location": venue["location"]})

    async def _send_contact(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        contact = {name: _required(given, name) for name in ("phone_number", "first_name")}
        return self._add(bot, given, call, {"contact": contact})

    async def _send_poll(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        question, listed = _required(given, "question"), given.array("options") or []
        if not listed:
            raise bad_request("poll must have at least 1 option")
        options = [
            {"persistent_id": str(index), "text": str(option.get("text")), "voter_count": 0}
            for index, option in enumerate(map(_object, listed))
        ]
        poll = {
            "id": _short_hash(question),
            "question": question,
            "options": options,
            "total_voter_count": 0,
            "is_closed": given.flag("is_closed"),
            "is_anonymous": True,
            "type": given.text("type") or "regular",
            "allows_multiple_answers": given.flag("allows_multiple_answers"),
            "allows_revoting": False,
            "members_only": False,
        }
        return self._add(bot, given, call, {"poll": poll})

    async def _send_dice(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        emoji = given.text("emoji") or "🎲"
        if emoji not in _DICE:
            raise bad_request("wrong dice emoji")
        return self._add(bot, given, call, {"dice": {"emoji": emoji, "value": 1}})

    async def _answer_inline(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        _required(given, "inline_query_id")
        if given.array("results") is None:
            raise bad_request("can't parse inline query result")
        return True


def caption_fields(caption: str) -> dict[str, Any]:
    """The caption of a message, if there is one."""
    if len(caption.encode("utf-16-le", "surrogatepass")) // 2 > MAX_CAPTION:
        raise bad_request("message caption is too long")
    return {"caption": caption} if caption else {}


def edited_caption(before: dict[str, Any], given: CallParameters) -> dict[str, Any]:
    """The message with another caption; only a message with a file has one."""
    if not any(kind in before for kind in _MEDIA if kind not in _WITHOUT_CAPTION):
        raise bad_request("there is no caption in the message to edit")
    after = {key: value for key, value in before.items() if key != "caption"}
    return after | caption_fields(given.text("caption"))


def _media_fields(kind: str, value: Any, given: CallParameters) -> dict[str, Any]:
    name = str(value or "")
    if name.startswith("attach://"):
        # An uploaded file: the parser of the request kept its name and size.
        name = str(given.values.get(name.removeprefix("attach://")) or "")
    if not name:
        raise bad_request(f"there is no {kind} in the request")
    file = {"file_id": name[:200], "file_unique_id": _short_hash(name), **_MEDIA[kind]}
    return {kind: [file] if kind == "photo" else file}


def _object(item: Any) -> dict[str, Any]:
    """An item of a list; a bare string is its text."""
    return cast("dict[str, Any]", item) if isinstance(item, dict) else {"text": item}


def _location(given: CallParameters) -> dict[str, float]:
    try:
        return {name: float(given.text(name)) for name in ("latitude", "longitude")}
    except ValueError:
        raise bad_request("latitude or longitude is empty or no number") from None


def _required(given: CallParameters, name: str) -> str:
    found = given.text(name)
    if not found.strip():
        raise bad_request(f"parameter {name} is required")
    return found


def _answerer(query: str, flag: str) -> Method:
    async def answer(bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        _required(given, query)
        _required(given, flag)
        return True

    return answer


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
