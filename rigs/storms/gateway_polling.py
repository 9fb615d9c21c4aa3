"""Where a gateway that fetches its updates can be killed, from getUpdates to the next offset.

The steps after receiving an update are the same as for webhooks (``gateway_steps``).
"""

from typing import Any

from httpcore2._async.http11 import AsyncHTTP11Connection

from rigs.storms.gateway_steps import KillPoint, Step, after
from telegram_gateway import polling
from telegram_gateway.bot_api import BotApi
from telegram_gateway.update_receiver import UpdateReceiver


def _fetched(kill: KillPoint) -> None:
    after(BotApi, "call", kill, lambda found, _, __, method, *___: _is_batch(found, method))


def _half_stored(kill: KillPoint) -> None:
    after(UpdateReceiver, "receive", kill)


def _stored(kill: KillPoint) -> None:
    after(polling, "_receive_batch", kill, lambda _, __, ___, batch, *____: bool(batch))


def _confirmed(kill: KillPoint) -> None:
    after(AsyncHTTP11Connection, "_send_request_body", kill, lambda _, __, ask: _is_fetch(ask))


def _is_batch(found: Any, method: str) -> bool:
    return method == "getUpdates" and bool(found)


def _is_fetch(ask: Any) -> bool:
    return ask.url.target.startswith(b"/bot") and ask.url.target.endswith(b"/getUpdates")


POLLING_STEPS = {
    step.name: step
    for step in (
        Step("fetched", "updates fetched, none stored", _fetched),
        Step("half-stored", "the first of a batch stored, the others not", _half_stored),
        Step("batch-stored", "a batch stored, not confirmed to Telegram", _stored),
        Step("confirmed", "the higher offset on its way", _confirmed),
    )
}
