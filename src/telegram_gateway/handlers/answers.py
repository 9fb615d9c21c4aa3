"""What a service or a program may answer to an update, and the calls that follow from it."""

from typing import Any, cast

from forge_jobs import Dead
from telegram_gateway.calls import ALLOWED, Call, message, split
from telegram_gateway.update import Update


def calls_of(answer: Any, update: Update) -> list[Call]:
    """The calls in ``{"text": …}`` or ``{"messages": [{"method": …, "parameters": …}]}``.

    Dead for an answer of another shape, a method that is not allowed, or another chat.
    """
    if answer is None:
        return []
    if not isinstance(answer, dict):
        raise Dead("the answer is no JSON object")
    fields = cast("dict[str, Any]", answer)
    calls: list[Call] = []
    text = fields.get("text")
    if text is not None and not isinstance(text, str):
        raise Dead("text in the answer is no text")
    if text and update.chat_id is not None:
        chat = update.chat_id
        calls += [message(chat, piece, thread_id=update.thread_id) for piece in split(text)]
    listed = fields.get("messages")
    if listed is not None and not isinstance(listed, list):
        raise Dead("messages in the answer is no list")
    for place, item in enumerate(cast("list[Any]", listed or [])):
        calls.append(_call(item, update, place))
    return calls


def _call(item: Any, update: Update, place: int) -> Call:
    where = f"messages[{place}] in the answer"
    if not isinstance(item, dict):
        raise Dead(f"{where} is no object with method and parameters")
    fields = cast("dict[str, Any]", item)
    method, given = fields.get("method"), fields.get("parameters", {})
    if method not in ALLOWED:
        raise Dead(f"{where} has a method that is not allowed")
    if not isinstance(given, dict):
        raise Dead(f"{where} has parameters that are no object")
    parameters = dict(cast("dict[str, Any]", given))
    if not method.startswith("answer"):
        chat = parameters.setdefault("chat_id", update.chat_id)
        if chat is None or str(chat) != str(update.chat_id):
            raise Dead(f"{where} goes to another chat than the update's")
    return Call(method, parameters)
