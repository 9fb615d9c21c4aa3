"""The methods that receive updates: by webhook or getUpdates, never both."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from forge_jobs import Clock

from .call_parameters import CallParameters
from .refusal import Refusal, bad_request, too_many_requests
from .updates import selected_kinds
from .world import FakeBot, Method, ReceivedCall, WebhookSettings

_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")
_PORTS: Final = (443, 80, 88, 8443)
_MAX_POLL_S: Final = 50
_MAX_BATCH: Final = 100
_MIN_SET_WEBHOOK_S: Final = 1.0


class Receiving:
    """``local`` allows what a self-hosted Bot API server allows: any address, any port."""

    def __init__(
        self, clock: Clock, start_delivery: Callable[[FakeBot], None], *, local: bool
    ) -> None:
        self._clock = clock
        self._start = start_delivery
        self._local = local
        self.methods: dict[str, Method] = {
            "setwebhook": self._set_webhook,
            "deletewebhook": self._delete_webhook,
            "getwebhookinfo": self._webhook_info,
            "getupdates": self._get_updates,
        }

    # ------------------------------------------------------------------ webhook

    async def _set_webhook(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        """Each call replaces all settings but ``allowed_updates``; no secret removes the secret."""
        url = given.text("url")
        if not url:
            return await self._delete_webhook(bot, given, call)
        self._check_url(url)
        secret = given.text("secret_token")
        if secret and not _SECRET.fullmatch(secret):
            raise bad_request("secret token contains unallowed characters")
        now = self._clock.mono()
        if bot.webhook_set_at is not None and now - bot.webhook_set_at < _MIN_SET_WEBHOOK_S:
            raise too_many_requests(1)
        bot.webhook_set_at = now
        max_connections = 100_000 if self._local else 100
        connections = min(max(given.integer("max_connections") or 40, 1), max_connections)
        bot.allowed = selected_kinds(given.array("allowed_updates"), bot.allowed)
        if given.flag("drop_pending_updates"):
            bot.waiting.clear()
        self._stop(bot, "terminated by setWebhook request")
        bot.webhook = WebhookSettings(url, secret, connections)
        self._start(bot)
        return True

    async def _delete_webhook(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        """Pending updates are kept unless ``drop_pending_updates`` is set."""
        self._stop(bot, "terminated by setWebhook request")
        bot.webhook = None
        if given.flag("drop_pending_updates"):
            bot.waiting.clear()
        return True

    async def _webhook_info(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        """The state of the webhook."""
        hook = bot.webhook
        found: dict[str, Any] = {
            "url": "" if hook is None else hook.url,
            "has_custom_certificate": False,
            "pending_update_count": len(bot.waiting),
        }
        if hook is not None:
            found["max_connections"] = hook.connections
            if hook.last_error_at is not None:
                found["last_error_date"] = hook.last_error_at
                found["last_error_message"] = hook.last_error
        if bot.allowed is not None:
            found["allowed_updates"] = sorted(bot.allowed)
        return found

    def _check_url(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise bad_request("bad webhook: invalid webhook URL specified") from None
        if not host or parts.scheme not in ("http", "https"):
            raise bad_request("bad webhook: invalid webhook URL specified")
        if self._local:
            return
        if parts.scheme != "https":
            raise bad_request("bad webhook: An HTTPS URL must be provided for webhook")
        if (port or 443) not in _PORTS:
            raise bad_request(
                "bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443"
            )

    def _stop(self, bot: FakeBot, why: str) -> None:
        if bot.delivery is not None:
            bot.delivery.close()
            bot.delivery = None
        _end_get_updates(bot, why)

    # ------------------------------------------------------------------ getUpdates

    async def _get_updates(self, bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
        """Return pending updates until a higher offset confirms them. A second call ends the
        first one with 409."""
        if bot.webhook is not None:
            raise Refusal(
                409,
                "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook "
                "to delete the webhook first",
            )
        _end_get_updates(bot, "terminated by other getUpdates request")
        bot.allowed = selected_kinds(given.array("allowed_updates"), bot.allowed)
        self._confirm(bot, given.integer("offset", 0) or 0)
        limit = min(max(given.integer("limit") or _MAX_BATCH, 1), _MAX_BATCH)
        wait_s = min(max(given.integer("timeout") or 0, 0), _MAX_POLL_S)
        if not bot.waiting and wait_s:
            await self._wait(bot, wait_s)
        found = [update.as_dict for update in bot.waiting.values()]
        return found[:limit]

    def _confirm(self, bot: FakeBot, offset: int) -> None:
        now = self._clock.now()
        if offset < 0:
            confirmed = list(bot.waiting.values())[:offset]
        else:
            confirmed = [update for update in bot.waiting.values() if update.id < offset]
        for update in confirmed:
            bot.finish_update(update, delivered=True)
        for update in list(bot.waiting.values()):
            if update.expires < now:
                bot.finish_update(update, delivered=False)

    async def _wait(self, bot: FakeBot, seconds: float) -> None:
        poller = bot.poller = asyncio.get_running_loop().create_future()
        slept = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({poller, slept}, return_when=asyncio.FIRST_COMPLETED)
            if poller.done():
                poller.result()
        finally:
            slept.cancel()
            if bot.poller is poller:
                bot.poller = None


def wake_get_updates(bot: FakeBot) -> None:
    """Wake a waiting getUpdates call: there is a new update, or the server stops."""
    if bot.poller is not None and not bot.poller.done():
        bot.poller.set_result(None)


def _end_get_updates(bot: FakeBot, why: str) -> None:
    if bot.poller is not None and not bot.poller.done():
        bot.poller.set_exception(Refusal(409, f"Conflict: {why}"))
