"""The built-in handler of alert jobs: every worker has it, whatever its tasks are."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from forge_jobs import config
from forge_jobs.core import payload
from forge_jobs.core.alert_values import ALERT_KIND
from forge_jobs.core.alerts import Episode, Phase, message
from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import SECOND
from forge_jobs.core.outcome import Dead, Done, Failed, JobOutcome
from forge_jobs.core.retry import Retry
from forge_jobs.core.webhook import signed_headers
from forge_jobs.kit.call_threads import call_in_thread
from forge_jobs.kit.webhook_post import NotDelivered, post_message
from forge_jobs.store.alerts import AlertRules
from forge_jobs.store.store import Store

from .context import Context
from .registry import Handler, RunIn

_RETRY: Final = Retry(base=5, max=900)
_TIMEOUT_S: Final = 60.0


class _DeliveryPayload(Struct, frozen=True):
    phase: Phase
    episode: Episode


def delivery_handler(store: Store) -> Handler:
    """The handler of alert jobs of this store."""
    delivery = AlertDelivery(store)

    def call(data: bytes, make_context: Callable[[], Context]) -> Any:
        return delivery.run(payload.decode(data))

    return Handler(
        kind=ALERT_KIND,
        run_in=RunIn.LOOP,
        call=call,
        retry=_RETRY,
        timeout_s=_TIMEOUT_S,
        apart=True,
    )


class AlertDelivery:
    """Sends the message of an episode to the webhook of its rule, as the rule is now.

    The message id names episode and phase, and is the same at every attempt: a receiver drops an id
    that it has seen.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run(self, value: Any) -> JobOutcome | Any:
        """Send the message once. The result says what happened; no text holds the address."""
        try:
            wanted = msgspec.convert(value, _DeliveryPayload)
        except msgspec.ValidationError as error:
            return Dead(f"{ALERT_KIND}: the payload is wrong: {error}")
        episode = wanted.episode
        try:
            rule = await AlertRules(self._store).get(episode.rule)
        except NotFound:
            return Done({"delivered": False, "reason": "the rule was removed"})
        if rule.url is None:
            return Done({"delivered": False, "reason": "the rule has no receiver"})
        link = config.web_url()
        body = msgspec.json.encode(
            message(episode, wanted.phase, link=None if link is None else f"{link}/alerts")
        )
        message_id = f"{episode.id}.{wanted.phase}"
        headers = signed_headers(rule.secret, message_id, await self._store.now() // SECOND, body)
        try:
            status = await call_in_thread(_post, rule.url, body, headers)
        except NotDelivered as error:
            return Failed(str(error))
        return Done({"delivered": True, "status": status})


def _post(url: str, body: bytes, headers: dict[str, str]) -> int:
    return post_message(url, body, headers, private_hosts=config.alert_hosts())
