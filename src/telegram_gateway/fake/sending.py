"""The methods that send, edit and delete messages, with Telegram's refusals."""

from typing import Any, Final

from forge_jobs import Clock

from .call_parameters import CallParameters
from .media import MediaMethods, edited_caption
from .refusal import Refusal, bad_request
from .updates import SECOND
from .world import Chat, FakeBot, Method, ReceivedCall

MAX_TEXT: Final = 4_096
_ACTIONS: Final = frozenset(
    {
        "typing", "upload_photo", "record_video", "upload_video", "record_voice", "upload_voice",
        "upload_document", "choose_sticker", "find_location", "record_video_note",
        "upload_video_note",
    }
)  # fmt: skip
_GIFTS: Final = (
    "unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription",
    "gifts_from_channels",
)  # fmt: skip


class Sending:
    """Implements the methods and records their effects in chats."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.methods: dict[str, Method] = {
            "sendmessage": self._send,
            "sendchataction": self._act,
            "editmessagetext": self._edit,
            "editmessagecaption": self._edit_caption,
            "editmessagereplymarkup": self._edit_markup,
            "deletemessage": self._delete,
            "answercallbackquery": self._answer_query,
            "setmessagereaction": self._react,
            "getchat": self._get_chat,
            **MediaMethods(self._add_message).methods,
        }

    # ------------------------------------------------------------------ messages

    async def _send(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        return self._add_message(bot, given, call, {"text": _checked_text(given)})

    def _add_message(
        self, bot: FakeBot, given: CallParameters, call: ReceivedCall, fields: dict[str, Any]
    ) -> dict[str, Any]:
        """Store a message of the bot with these fields in its chat."""
        chat = self._chat(bot, given)
        message: dict[str, Any] = {
            "message_id": chat.next_message(),
            "from": bot.user,
            "chat": chat.about,
            "date": self._clock.now() // SECOND,
            **fields,
        }
        business = given.text("business_connection_id")
        if business:
            message["business_connection_id"] = business
        thread = given.integer("message_thread_id")
        if thread is not None:
            message |= {"message_thread_id": thread, "is_topic_message": True}
        replied = given.object_value("reply_parameters").get("message_id")
        before = chat.messages.get(replied) if isinstance(replied, int) else None
        if before is not None:
            message["reply_to_message"] = before
        message |= _inline_keyboard(given)
        chat.messages[message["message_id"]] = message
        chat.add(self._clock.now(), "bot", "message", message, call)
        return message

    async def _edit_caption(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        chat = self._chat(bot, given)
        before = self._own(bot, chat, given, "edit")
        after = edited_caption(before, given)
        after.pop("reply_markup", None)
        return self._changed(chat, before, after | _inline_keyboard(given), call)

    async def _edit(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        chat = self._chat(bot, given)
        before = self._own(bot, chat, given, "edit")
        text = _checked_text(given)
        after = {key: value for key, value in before.items() if key != "reply_markup"}
        after |= {"text": text, **_inline_keyboard(given)}
        return self._changed(chat, before, after, call)

    async def _edit_markup(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        chat = self._chat(bot, given)
        before = self._own(bot, chat, given, "edit")
        after = {key: value for key, value in before.items() if key != "reply_markup"}
        return self._changed(chat, before, after | _inline_keyboard(given), call)

    def _changed(
        self, chat: Chat, before: dict[str, Any], after: dict[str, Any], call: ReceivedCall
    ) -> dict[str, Any]:
        if after == before:
            raise bad_request("message is not modified")
        after["edit_date"] = self._clock.now() // SECOND
        chat.messages[after["message_id"]] = after
        chat.add(self._clock.now(), "bot", "edit", after, call)
        return after

    async def _delete(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        chat = self._chat(bot, given)
        number = given.integer("message_id")
        found = chat.messages.pop(number or 0, None)
        if found is None:
            raise bad_request("message to delete not found")
        chat.add(self._clock.now(), "bot", "delete", {"message_id": number}, call)
        return True

    # ------------------------------------------------------------------ the rest

    async def _act(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        chat = self._chat(bot, given)
        action = given.text("action")
        if action not in _ACTIONS:
            raise bad_request("wrong parameter action in request")
        chat.add(self._clock.now(), "bot", "action", {"action": action}, call)
        return True

    async def _react(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        chat = self._chat(bot, given)
        number = given.integer("message_id") or 0
        if number not in chat.messages:
            raise bad_request("message to react not found")
        body = {"message_id": number, "reaction": given.array("reaction") or []}
        chat.add(self._clock.now(), "bot", "reaction", body, call)
        return True

    async def _answer_query(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        found = bot.queries.pop(given.text("callback_query_id"), None)
        if found is None or found[1] < self._clock.now():
            raise bad_request(
                "query is too old and response timeout expired or query ID is invalid"
            )
        chat = bot.chats[found[0]]
        body = {"text": given.text("text"), "show_alert": given.flag("show_alert")}
        chat.add(self._clock.now(), "bot", "answer", body, call)
        return True

    async def _get_chat(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        chat = self._chat(bot, given)
        gifts = dict.fromkeys(_GIFTS, False)
        more = {"accent_color_id": 0, "max_reaction_count": 11, "accepted_gift_types": gifts}
        return {**chat.about, **more}

    # ------------------------------------------------------------------ lookups

    def _chat(self, bot: FakeBot, given: CallParameters) -> Chat:
        named = given.text("chat_id").strip()
        if not named:
            raise bad_request("chat_id is empty")
        chat = _find_chat(bot, named)
        if chat is None:
            raise bad_request("chat not found")
        if chat.moved_to is not None:
            raise Refusal(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=chat.moved_to,
            )
        if chat.blocked:
            raise Refusal(403, "Forbidden: bot was blocked by the user")
        return chat

    def _own(self, bot: FakeBot, chat: Chat, given: CallParameters, what: str) -> dict[str, Any]:
        found = chat.messages.get(given.integer("message_id") or 0)
        if found is None:
            raise bad_request(f"message to {what} not found")
        if found["from"]["id"] != bot.id:
            raise bad_request(f"message can't be {what}ed")
        return found


def _find_chat(bot: FakeBot, named: str) -> Chat | None:
    if named.startswith("@"):
        for chat in bot.chats.values():
            if f"@{chat.about.get('username', '')}".lower() == named.lower():
                return chat
        return None
    try:
        return bot.chats.get(int(named))
    except ValueError:
        return None


def _checked_text(given: CallParameters) -> str:
    """The text, unparsed: the fake does not interpret markup."""
    text = given.text("text")
    if not text.strip():
        raise bad_request("message text is empty")
    if len(text.encode("utf-16-le", "surrogatepass")) // 2 > MAX_TEXT:
        raise bad_request("message is too long")
    return text


def _inline_keyboard(given: CallParameters) -> dict[str, Any]:
    """The inline keyboard: the only kind that is part of the message."""
    markup = given.object_value("reply_markup")
    if "inline_keyboard" in markup:
        return {"reply_markup": {"inline_keyboard": markup["inline_keyboard"]}}
    return {}
