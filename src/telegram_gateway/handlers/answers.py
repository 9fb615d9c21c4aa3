"""Turns the answer of a service or program into Bot API calls.

It has one of three forms: ``{"text": …}`` with further parameters of sendMessage, Telegram's own
``{"method": …, …}`` as in the response to a webhook, or ``{"messages": [call, …]}``.
"""

from typing import Any, Final, cast

from forge_jobs import Dead
from telegram_gateway.calls import Call, addressed, allowed_method, message, split_text
from telegram_gateway.update import Update

# The parameters of sendMessage that may stand beside ``text``. Other fields are the service's own.
_BESIDE_TEXT: Final = frozenset(
    {
        "chat_id", "parse_mode", "entities", "link_preview_options", "disable_web_page_preview",
        "disable_notification", "protect_content", "allow_paid_broadcast", "message_effect_id",
        "reply_parameters", "reply_to_message_id", "allow_sending_without_reply", "reply_markup",
        "message_thread_id", "business_connection_id", "direct_messages_topic_id",
    }
)  # fmt: skip
# Only the first piece of a long text replies to a message, only the last one has a keyboard.
_FIRST_ONLY: Final = ("reply_parameters", "reply_to_message_id", "allow_sending_without_reply")
_MAX_SHOWN: Final = 60


def calls_of(answer: Any, update: Update) -> list[Call]:
    """The calls in an answer. Raises Dead for another structure, a method that is not allowed, or
    another chat than the update's."""
    if answer is None:
        return []
    if not isinstance(answer, dict):
        raise Dead("the answer is not a JSON object")
    fields = cast("dict[str, Any]", answer)
    if "method" in fields:
        if "messages" in fields:
            raise Dead("the answer has method and messages: use one of them")
        return [_call(fields, update, "the answer")]
    listed = fields.get("messages")
    if listed is not None and not isinstance(listed, list):
        raise Dead("messages in the answer is not a list")
    calls = _text_calls(fields, update)
    for index, item in enumerate(cast("list[Any]", listed or [])):
        calls.append(_call(item, update, f"messages[{index}] in the answer"))
    return calls


def _text_calls(fields: dict[str, Any], update: Update) -> list[Call]:
    """The messages of ``text``. A long plain text is split; one with markup is not."""
    text = fields.get("text")
    if text is not None and not isinstance(text, str):
        raise Dead("text in the answer is not a string")
    if not text or update.chat_id is None:
        return []
    more = {name: fields[name] for name in _BESIDE_TEXT & fields.keys()}
    has_markup = bool(more.get("parse_mode") or more.get("entities"))
    pieces = [text] if has_markup else split_text(text)
    calls: list[Call] = []
    for index, piece in enumerate(pieces):
        call = message(update.chat_id, piece)
        parameters = {**call.parameters, **more}
        for name in _FIRST_ONLY if index else ():
            parameters.pop(name, None)
        if index + 1 < len(pieces):
            parameters.pop("reply_markup", None)
        calls.append(_checked(call.method, parameters, update, "the answer"))
    return calls


def _call(item: Any, update: Update, where: str) -> Call:
    """``{"method": …, "parameters": {…}}``, or Telegram's form: the parameters beside method."""
    if not isinstance(item, dict):
        raise Dead(f"{where} is not an object with method and parameters")
    fields = cast("dict[str, Any]", item)
    name = fields.get("method")
    method = allowed_method(name) if isinstance(name, str) else None
    if method is None:
        raise Dead(
            f"{where} calls {str(name)[:_MAX_SHOWN]!r}, which an answer must not call: allowed are "
            "the sending, editing and answering methods of docs/gateway.md"
        )
    given = fields.get("parameters")
    if given is None:
        given = {key: value for key, value in fields.items() if key not in ("method", "parameters")}
    if not isinstance(given, dict):
        raise Dead(f"{where} has parameters that are not an object")
    return _checked(method, cast("dict[str, Any]", given), update, where)


def _checked(method: str, parameters: dict[str, Any], update: Update, where: str) -> Call:
    """The call, addressed to the chat of the update; Dead if it names another one."""
    inline = parameters.get("inline_message_id")
    if inline is not None and method.startswith("editMessage") and "chat_id" not in parameters:
        if inline != update.inline_message_id:
            raise Dead(f"{where} edits another inline message than the update's")
        return Call(method, parameters)
    if not method.startswith("answer"):
        chat = parameters.get("chat_id") or update.chat_id
        if chat is None or str(chat).strip() != str(update.chat_id):
            raise Dead(f"{where} is addressed to another chat than the update's")
        parameters = {**parameters, "chat_id": update.chat_id}
    return addressed(Call(method, parameters), update)
