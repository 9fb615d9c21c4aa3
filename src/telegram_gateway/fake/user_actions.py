"""Actions of a user: write, edit, press a button, block. Each returns the body of an update."""

import re
from typing import Any, Final

from .refusal import bad_request
from .updates import SECOND
from .world import Chat, FakeBot

_COMMAND: Final = re.compile(r"(?<!\S)/[A-Za-z0-9_]{1,32}(?:@[A-Za-z0-9_]{1,32})?")


def user_object(user_id: int, name: str = "Ann") -> dict[str, Any]:
    """A User object of the Bot API."""
    return {"id": user_id, "is_bot": False, "first_name": name, "language_code": "en"}


def open_chat(bot: FakeBot, chat_id: int, name: str = "Ann") -> Chat:
    """The chat with that id, created if missing; negative ids are groups."""
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


def user_message(
    bot: FakeBot, chat: Chat, sender: dict[str, Any], text: str, now: int, more: dict[str, Any]
) -> dict[str, Any]:
    """Add a user's message to a chat."""
    message: dict[str, Any] = {
        "message_id": chat.next_message(),
        "from": sender,
        "chat": chat.about,
        "date": now // SECOND,
        **({"text": text} if text else {}),
        **command_entities(text),
        **more,
    }
    chat.messages[message["message_id"]] = message
    chat.add(now, "user", "message", message)
    return message


def edit_message(chat: Chat, message_id: int, text: str, now: int) -> dict[str, Any]:
    """Edit a user's message."""
    before = chat.messages.get(message_id)
    if before is None:
        raise bad_request("there is no such message in this chat")
    kept = {key: value for key, value in before.items() if key not in ("text", "entities")}
    after = {**kept, "text": text, "edit_date": now // SECOND, **command_entities(text)}
    chat.messages[message_id] = after
    chat.add(now, "user", "edit", after)
    return after


def press_button(
    bot: FakeBot,
    chat: Chat,
    sender: dict[str, Any],
    message_id: int,
    data: str,
    now: int,
    query: str,
) -> dict[str, Any]:
    """Press a button under a message of the bot."""
    message = chat.messages.get(message_id)
    rows = (message or {}).get("reply_markup", {}).get("inline_keyboard", [])
    if not any(key.get("callback_data") == data for row in rows for key in row):
        raise bad_request("that message has no such button")
    bot.queries[query] = (int(chat.about["id"]), now + 150 * SECOND)
    chat.add(now, "user", "press", {"message_id": message_id, "data": data})
    return {
        "id": query,
        "from": sender,
        "message": message,
        "chat_instance": str(chat.about["id"]),
        "data": data,
    }


def member_update(
    bot: FakeBot, chat: Chat, sender: dict[str, Any], now: int, *, blocked: bool
) -> dict[str, Any]:
    """Block or unblock the bot."""
    states = ("member", "kicked") if blocked else ("kicked", "member")
    chat.blocked = blocked
    chat.add(now, "user", "block" if blocked else "unblock", {})
    old, new = ({"user": bot.user, **_state(state)} for state in states)
    return {
        "chat": chat.about,
        "from": sender,
        "date": now // SECOND,
        "old_chat_member": old,
        "new_chat_member": new,
    }


def _state(state: str) -> dict[str, Any]:
    return {"status": state, "until_date": 0} if state == "kicked" else {"status": state}


def command_entities(text: str) -> dict[str, Any]:
    """The bot_command entities of a text, in UTF-16 code units; client libraries need them."""
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
