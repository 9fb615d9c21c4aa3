"""The methods by which a bot gets its updates: webhook or getUpdates, never both."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from forge_jobs import Clock

from .call_parameters import CallParameters
from .refusal import Refusal, bad, too_many
from .updates import chosen_kinds
from .world import Call, FakeBot, Method, WebhookSettings

_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")
_PORTS: Final = (443, 80, 88, 8443)
_MAX_POLL_S: Final = 50
_MAX_BATCH: Final = 100
_SET_EVERY_S: Final = 1.0


class Receiving:
    """``local`` allows what a Bot API server of one's own allows: any address, any port."""

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

    async def _set_webhook(self, bot: FakeBot, given: CallParameters, call: Call) -> Any:
        """Each call replaces everything but ``allowed_updates``: no secret means no secret."""
        url = given.text("url")
        if not url:
            return await self._delete_webhook(bot, given, call)
        self._check_url(url)
        secret = given.text("secret_token")
        if secret and not _SECRET.fullmatch(secret):
            raise bad("secret token contains unallowed characters")
        now = self._clock.mono()
        if bot.webhook_set_at is not None and now - bot.webhook_set_at < _SET_EVERY_S:
            raise too_many(1)
        bot.webhook_set_at = now
        most = 100_000 if self._local else 100
        connections = min(max(given.whole("max_connections") or 40, 1), most)
        bot.allowed = chosen_kinds(given.listed("allowed_updates"), bot.allowed)
        if given.flag("drop_pending_updates"):
            bot.waiting.clear()
        self._stop(bot, "terminated by setWebhook request")
        bot.webhook = WebhookSettings(url, secret, connections)
        self._start(bot)
        return True

    async def _delete_webhook(self, bot: FakeBot, given: CallParameters, call: Call) -> Any:
        """Updates that wait are kept unless told otherwise."""
        self._stop(bot, "terminated by setWebhook request")
        bot.webhook = None
        if given.flag("drop_pending_updates"):
            bot.waiting.clear()
        return True

    async def _webhook_info(self, bot: FakeBot, given: CallParameters, call: Call) -> Any:
        """What is known about it."""
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
            raise bad("bad webhook: invalid webhook URL specified") from None
        if not host or parts.scheme not in ("http", "https"):
            raise bad("bad webhook: invalid webhook URL specified")
        if self._local:
            return
        if parts.scheme != "https":
            raise bad("bad webhook: An HTTPS URL must be provided for webhook")
        if (port or 443) not in _PORTS:
            raise bad("bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443")

    def _stop(self, bot: FakeBot, why: str) -> None:
        if bot.delivery is not None:
            bot.delivery.close()
            bot.delivery = None
        _end_poll(bot, why)

    # ------------------------------------------------------------------ getUpdates

    async def _get_updates(self, bot: FakeBot, given: CallParameters, call: Call) -> Any:
        """What waits, again and again until a higher offset confirms it. A second caller ends the
        call of the first."""
        if bot.webhook is not None:
            raise Refusal(
                409,
                "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook "
                "to delete the webhook first",
            )
        _end_poll(bot, "terminated by other getUpdates request")
        bot.allowed = chosen_kinds(given.listed("allowed_updates"), bot.allowed)
        self._confirm(bot, given.whole("offset", 0) or 0)
        limit = min(max(given.whole("limit") or _MAX_BATCH, 1), _MAX_BATCH)
        wait_s = min(max(given.whole("timeout") or 0, 0), _MAX_POLL_S)
        if not bot.waiting and wait_s:
            await self._wait(bot, wait_s)
        found = [update.whole for update in bot.waiting.values()]
        return found[:limit]

    def _confirm(self, bot: FakeBot, offset: int) -> None:
        now = self._clock.now()
        if offset < 0:
            confirmed = list(bot.waiting.values())[:offset]
        else:
            confirmed = [update for update in bot.waiting.values() if update.id < offset]
        for update in confirmed:
            bot.ended(update, delivered=True)
        for update in list(bot.waiting.values()):
            if update.expires < now:
                bot.ended(update, delivered=False)

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


def wake_poll(bot: FakeBot) -> None:
    """Something came, or nothing ever will: a call of getUpdates that waits looks again."""
    if bot.poller is not None and not bot.poller.done():
        bot.poller.set_result(None)


def _end_poll(bot: FakeBot, why: str) -> None:
    if bot.poller is not None and not bot.poller.done():
        bot.poller.set_exception(Refusal(409, f"Conflict: {why}"))
