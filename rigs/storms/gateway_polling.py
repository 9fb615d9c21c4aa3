"""Where a gateway that fetches its updates can be killed, from getUpdates to the next offset.

What comes after the door is the same as for webhooks (``gateway_steps``).
"""

from typing import Any

from httpcore2._async.http11 import AsyncHTTP11Connection

from rigs.storms.gateway_steps import Step, Strike, after
from telegram_gateway import polling
from telegram_gateway.bot_api import BotApi
from telegram_gateway.update_receiver import UpdateReceiver


def _fetched(strike: Strike) -> None:
    after(BotApi, "call", strike, lambda found, _, __, method, *___: _is_batch(found, method))


def _half_taken(strike: Strike) -> None:
    after(UpdateReceiver, "receive", strike)


def _taken(strike: Strike) -> None:
    after(polling, "_receive_batch", strike, lambda _, __, ___, batch, *____: bool(batch))


def _confirmed(strike: Strike) -> None:
    after(AsyncHTTP11Connection, "_send_request_body", strike, lambda _, __, ask: _is_fetch(ask))


def _is_batch(found: Any, method: str) -> bool:
    return method == "getUpdates" and bool(found)


def _is_fetch(ask: Any) -> bool:
    return ask.url.target.startswith(b"/bot") and ask.url.target.endswith(b"/getUpdates")


POLLING_STEPS = {
    step.name: step
    for step in (
        Step("fetched", "updates fetched, none stored", _fetched),
        Step("half-taken", "the first of a batch stored, the others not", _half_taken),
        Step("taken", "a batch stored, Telegram not told", _taken),
        Step("confirmed", "the higher offset on its way", _confirmed),
    )
}
