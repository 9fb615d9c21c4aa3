"""Parses the JSON answer of a service or program into Bot API calls."""

from typing import Any, cast

from forge_jobs import Dead
from telegram_gateway.calls import ALLOWED_METHODS, Call, message, split_text
from telegram_gateway.update import Update


def calls_of(answer: Any, update: Update) -> list[Call]:
    """The calls in ``{"text": …}`` or ``{"messages": [{"method": …, "parameters": …}]}``.

    Raises Dead for another structure, a method that is not allowed, or another chat.
    """
    if answer is None:
        return []
    if not isinstance(answer, dict):
        raise Dead("the answer is not a JSON object")
    fields = cast("dict[str, Any]", answer)
    calls: list[Call] = []
    text = fields.get("text")
    if text is not None and not isinstance(text, str):
        raise Dead("text in the answer is not a string")
    if text and update.chat_id is not None:
        chat = update.chat_id
        calls += [message(chat, piece, thread_id=update.thread_id) for piece in split_text(text)]
    listed = fields.get("messages")
    if listed is not None and not isinstance(listed, list):
        raise Dead("messages in the answer is not a list")
    for index, item in enumerate(cast("list[Any]", listed or [])):
        calls.append(_call(item, update, index))
    return calls


def _call(item: Any, update: Update, index: int) -> Call:
    where = f"messages[{index}] in the answer"
    if not isinstance(item, dict):
        raise Dead(f"{where} is not an object with method and parameters")
    fields = cast("dict[str, Any]", item)
    method, given = fields.get("method"), fields.get("parameters", {})
    if method not in ALLOWED_METHODS:
        raise Dead(f"{where} has a method that is not allowed")
    if not isinstance(given, dict):
        raise Dead(f"{where} has parameters that are not an object")
    parameters = dict(cast("dict[str, Any]", given))
    if not method.startswith("answer"):
        chat = parameters.setdefault("chat_id", update.chat_id)
        if chat is None or str(chat) != str(update.chat_id):
            raise Dead(f"{where} is addressed to another chat than the update's")
    return Call(method, parameters)
