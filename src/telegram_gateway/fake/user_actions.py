"""Acting as a person: writing, editing, pressing a button, blocking. Each gives an update."""

import re
from typing import Any, Final

from .refusal import bad
from .updates import SECOND
from .world import Chat, FakeBot

_COMMAND: Final = re.compile(r"(?<!\S)/[A-Za-z0-9_]{1,32}(?:@[A-Za-z0-9_]{1,32})?")


def person(user_id: int, name: str = "Ann") -> dict[str, Any]:
    """A user as updates show them."""
    return {"id": user_id, "is_bot": False, "first_name": name, "language_code": "en"}


def opened(bot: FakeBot, chat_id: int, name: str = "Ann") -> Chat:
    """The conversation with that number; numbers below zero are groups."""
    found = bot.chats.get(chat_id)
    if found is None:
        if chat_id > 0:
            about: dict[str, Any] = {"id": chat_id, "type": "private", "first_name": name}
        elif chat_id > -1_000_000_000_000:
            about = {"id": chat_id, "type": "group", "title": f"Group {-chat_id}"}
        else:
            about = {"id": chat_id, "type": "supergroup", "title": f"Group {-chat_id}"}
        found = bot.chats[chat_id] = Chat(about)
    return found


def said(
    bot: FakeBot, chat: Chat, who: dict[str, Any], text: str, now: int, more: dict[str, Any]
) -> dict[str, Any]:
    """A message of a person."""
    message: dict[str, Any] = {
        "message_id": chat.next_message(),
        "from": who,
        "chat": chat.about,
        "date": now // SECOND,
        **({"text": text} if text else {}),
        **commands(text),
        **more,
    }
    chat.messages[message["message_id"]] = message
    chat.add(now, "user", "message", message)
    return message


def edited(chat: Chat, message_id: int, text: str, now: int) -> dict[str, Any]:
    """The person changes what they wrote."""
    before = chat.messages.get(message_id)
    if before is None:
        raise bad("there is no such message in this chat")
    kept = {key: value for key, value in before.items() if key not in ("text", "entities")}
    after = {**kept, "text": text, "edit_date": now // SECOND, **commands(text)}
    chat.messages[message_id] = after
    chat.add(now, "user", "edit", after)
    return after


def pressed(
    bot: FakeBot, chat: Chat, who: dict[str, Any], message_id: int, data: str, now: int, query: str
) -> dict[str, Any]:
    """The person presses a button under a message of the bot."""
    message = chat.messages.get(message_id)
    rows = (message or {}).get("reply_markup", {}).get("inline_keyboard", [])
    if not any(key.get("callback_data") == data for row in rows for key in row):
        raise bad("that message has no such button")
    bot.queries[query] = (int(chat.about["id"]), now + 150 * SECOND)
    chat.add(now, "user", "press", {"message_id": message_id, "data": data})
    return {
        "id": query,
        "from": who,
        "message": message,
        "chat_instance": str(chat.about["id"]),
        "data": data,
    }


def member_update(
    bot: FakeBot, chat: Chat, who: dict[str, Any], now: int, *, blocked: bool
) -> dict[str, Any]:
    """The person blocks the bot, or lets it in again."""
    states = ("member", "kicked") if blocked else ("kicked", "member")
    chat.blocked = blocked
    chat.add(now, "user", "block" if blocked else "unblock", {})
    old, new = ({"user": bot.user, **_state(state)} for state in states)
    return {
        "chat": chat.about,
        "from": who,
        "date": now // SECOND,
        "old_chat_member": old,
        "new_chat_member": new,
    }


def _state(state: str) -> dict[str, Any]:
    return {"status": state, "until_date": 0} if state == "kicked" else {"status": state}


def commands(text: str) -> dict[str, Any]:
    """Where commands stand in a text, counted as Telegram counts: libraries look for this."""
    found = [
        {
            "type": "bot_command",
            "offset": _units(text[: match.start()]),
            "length": _units(match.group()),
        }
        for match in _COMMAND.finditer(text)
    ]
    return {"entities": found} if found else {}


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
