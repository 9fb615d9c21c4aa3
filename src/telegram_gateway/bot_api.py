"""The Bot API as far as a gateway needs it: one call, and what its errors mean."""

import logging
from collections.abc import Mapping
from typing import Any, Final

import httpx2
import msgspec

from .config import Bot
from .masking import Mask
from .metrics import GatewayMetrics

_LOG: Final = logging.getLogger("telegram_gateway.bot_api")
# Servers close what is idle, many of them after five seconds. A request that meets the close on its
# way is lost, and nobody can tell that from a lost answer: so idle connections are ours to close.
_KEPT_S: Final = 4.0
_NEVER_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.WriteTimeout,
)


class ApiError(Exception):
    """Telegram said no."""

    def __init__(
        self,
        code: int,
        description: str,
        *,
        retry_after_s: float | None = None,
        moved_to: int | None = None,
    ) -> None:
        super().__init__(f"Telegram answered {code}: {description[:300]}")
        self.code = code
        self.retry_after_s = retry_after_s
        self.moved_to = moved_to


class Unreachable(Exception):
    """No answer: whether the call had an effect is not known."""


class NotReached(Unreachable):
    """Telegram never had the whole request: the call had no effect."""


class _Parameters(msgspec.Struct):
    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class _Answer(msgspec.Struct):
    ok: bool
    result: Any = None
    error_code: int = 0
    description: str = ""
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)


_DECODER = msgspec.json.Decoder(_Answer)


class BotApi:
    """Calls methods for any bot; the address is the bot's own ``api_base``."""

    def __init__(self, mask: Mask, counters: GatewayMetrics, *, timeout_s: float = 20.0) -> None:
        self._mask = mask
        self._counters = counters
        self._refused: set[str] = set()
        self._timeout_s = timeout_s
        self._client: httpx2.AsyncClient | None = None

    async def call(
        self, bot: Bot, method: str, parameters: Mapping[str, Any], *, wait_s: float = 0.0
    ) -> Any:
        """The result of a method. ApiError for a refusal, Unreachable for no answer.

        The token stands in the address, so no error of the HTTP client is passed on.
        """
        try:
            answer = await self._connected().post(
                f"{bot.api_base}/bot{bot.token}/{method}",
                content=msgspec.json.encode(parameters),
                headers={"content-type": "application/json"},
                timeout=self._timeout_s + wait_s,
            )
            found = _DECODER.decode(answer.content)
        except _NEVER_SENT as error:
            raise NotReached(f"{method}: {type(error).__name__}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise Unreachable(f"{method}: {type(error).__name__}") from None
        except msgspec.MsgspecError:
            raise Unreachable(f"{method}: the answer was not JSON") from None
        if found.ok:
            self._note(bot, refused=False)
            return found.result
        code = found.error_code or answer.status_code
        if code == 401 or (code == 404 and method == "getMe"):
            self._note(bot, refused=True)
        raise ApiError(
            code,
            self._mask(found.description),
            retry_after_s=found.parameters.retry_after,
            moved_to=found.parameters.migrate_to_chat_id,
        )

    async def knows(self, bot: Bot) -> bool:
        """Whether Telegram takes the bot's token.

        A revoked token is answered with 401, one that never was with 404, like a method that is
        none; so getMe decides. No answer counts as yes: nothing was refused.
        """
        try:
            await self.call(bot, "getMe", {})
        except (ApiError, Unreachable):
            return bot.slug not in self._refused
        return True

    async def works(self, bot: Bot) -> bool:
        """Whether Telegram answers this bot at all, be it with a refusal."""
        try:
            await self.call(bot, "getMe", {})
        except Unreachable:
            return False
        except ApiError as error:
            return error.code < 500
        return True

    def _connected(self) -> httpx2.AsyncClient:
        if self._client is None:
            limits = httpx2.Limits(
                max_connections=100, max_keepalive_connections=20, keepalive_expiry=_KEPT_S
            )
            # A connection that could not be made is tried once more, at once.
            transport = httpx2.AsyncHTTPTransport(limits=limits, trust_env=False, retries=1)
            self._client = httpx2.AsyncClient(
                transport=transport, trust_env=False, timeout=self._timeout_s
            )
        return self._client

    def _note(self, bot: Bot, *, refused: bool) -> None:
        if refused == (bot.slug in self._refused):
            return
        self._counters.show("gateway_token_refused", float(refused), bot=bot.slug)
        if refused:
            self._refused.add(bot.slug)
            _LOG.error(
                "bot %s: Telegram refuses its token: its sends wait; ask @BotFather for a new one",
                bot.slug,
            )
        else:
            self._refused.discard(bot.slug)
            _LOG.info("bot %s: Telegram takes its token again", bot.slug)

    async def close(self) -> None:
        """Let go of the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None
