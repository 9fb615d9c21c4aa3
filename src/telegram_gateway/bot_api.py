"""A client for Telegram's Bot API: one method call, and the errors it can end with."""

import logging
from collections.abc import Mapping
from typing import Any, Final

import httpx2
import msgspec

from .config import Bot
from .masking import Mask
from .metrics import GatewayMetrics

_LOG: Final = logging.getLogger("telegram_gateway.bot_api")
# Many servers close idle connections after five seconds. A request sent while the server closes is
# lost, and cannot be told apart from a lost response. So the client closes idle connections first.
_KEEPALIVE_S: Final = 4.0
_NOT_SENT_ERRORS: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.WriteTimeout,
)


class ApiError(Exception):
    """Telegram refused the call."""

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


class NoResponse(Exception):
    """No usable response: it is unknown whether the call had an effect."""


class RequestNotSent(NoResponse):
    """The request was not sent completely: the call had no effect."""


class _ResponseParameters(msgspec.Struct):
    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class _ApiResponse(msgspec.Struct):
    ok: bool
    result: Any = None
    error_code: int = 0
    description: str = ""
    parameters: _ResponseParameters = msgspec.field(default_factory=_ResponseParameters)


_DECODER = msgspec.json.Decoder(_ApiResponse)


class BotApi:
    """Calls methods for any bot, at the bot's ``api_base``."""

    def __init__(self, mask: Mask, counters: GatewayMetrics, *, timeout_s: float = 20.0) -> None:
        self._mask = mask
        self._counters = counters
        self._refused: set[str] = set()
        self._timeout_s = timeout_s
        self._client: httpx2.AsyncClient | None = None

    async def call(
        self, bot: Bot, method: str, parameters: Mapping[str, Any], *, wait_s: float = 0.0
    ) -> Any:
        """Call a method and return its result. Raises ApiError or NoResponse.

        The URL contains the token, so errors of the HTTP client are never chained.
        """
        try:
            response = await self._http_client().post(
                f"{bot.api_base}/bot{bot.token}/{method}",
                content=msgspec.json.encode(parameters),
                headers={"content-type": "application/json"},
                timeout=self._timeout_s + wait_s,
            )
            reply = _DECODER.decode(response.content)
        except _NOT_SENT_ERRORS as error:
            raise RequestNotSent(f"{method}: {type(error).__name__}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise NoResponse(f"{method}: {type(error).__name__}") from None
        except msgspec.MsgspecError:
            raise NoResponse(f"{method}: the response was not JSON") from None
        if reply.ok:
            self._set_token_refused(bot, refused=False)
            return reply.result
        code = reply.error_code or response.status_code
        if code == 401 or (code == 404 and method == "getMe"):
            self._set_token_refused(bot, refused=True)
        raise ApiError(
            code,
            self._mask(reply.description),
            retry_after_s=reply.parameters.retry_after,
            moved_to=reply.parameters.migrate_to_chat_id,
        )

    async def accepts_token(self, bot: Bot) -> bool:
        """Whether Telegram accepts the bot's token.

        A revoked token gets 401. A token that never existed gets 404, which is also the response to
        an unknown method; so getMe decides. No response counts as accepted.
        """
        try:
            await self.call(bot, "getMe", {})
        except (ApiError, NoResponse):
            return bot.slug not in self._refused
        return True

    async def is_available(self, bot: Bot) -> bool:
        """Whether Telegram responds to this bot at all; a refusal below 500 counts."""
        try:
            await self.call(bot, "getMe", {})
        except NoResponse:
            return False
        except ApiError as error:
            return error.code < 500
        return True

    def _http_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            limits = httpx2.Limits(
                max_connections=100, max_keepalive_connections=20, keepalive_expiry=_KEEPALIVE_S
            )
            # A failed connection attempt is repeated once, immediately.
            transport = httpx2.AsyncHTTPTransport(limits=limits, trust_env=False, retries=1)
            self._client = httpx2.AsyncClient(
                transport=transport, trust_env=False, timeout=self._timeout_s
            )
        return self._client

    def _set_token_refused(self, bot: Bot, *, refused: bool) -> None:
        if refused == (bot.slug in self._refused):
            return
        self._counters.set_gauge("gateway_token_refused", float(refused), bot=bot.slug)
        if refused:
            self._refused.add(bot.slug)
            _LOG.error(
                "bot %s: Telegram refuses its token; its sends are delayed: get a new token from "
                "@BotFather",
                bot.slug,
            )
        else:
            self._refused.discard(bot.slug)
            _LOG.info("bot %s: Telegram accepts its token again", bot.slug)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None
