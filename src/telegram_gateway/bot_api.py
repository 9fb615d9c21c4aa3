"""The Bot API as far as a gateway needs it: one call, and what its errors mean."""

from collections.abc import Mapping
from typing import Any

import httpx2
import msgspec

from .config import Bot
from .masking import Mask


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

    def __init__(self, mask: Mask, *, timeout_s: float = 20.0) -> None:
        self._mask = mask
        self._timeout_s = timeout_s
        self._client: httpx2.AsyncClient | None = None

    async def call(
        self, bot: Bot, method: str, parameters: Mapping[str, Any], *, wait_s: float = 0.0
    ) -> Any:
        """The result of a method. ApiError for a refusal, Unreachable for no answer.

        The token stands in the address, so no error of the HTTP client is passed on.
        """
        if self._client is None:
            self._client = httpx2.AsyncClient(trust_env=False, timeout=self._timeout_s)
        try:
            answer = await self._client.post(
                f"{bot.api_base}/bot{bot.token}/{method}",
                content=msgspec.json.encode(parameters),
                headers={"content-type": "application/json"},
                timeout=self._timeout_s + wait_s,
            )
            found = _DECODER.decode(answer.content)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise Unreachable(f"{method}: {type(error).__name__}") from None
        except msgspec.MsgspecError:
            raise Unreachable(f"{method}: the answer was not JSON") from None
        if found.ok:
            return found.result
        raise ApiError(
            found.error_code or answer.status_code,
            self._mask(found.description),
            retry_after_s=found.parameters.retry_after,
            moved_to=found.parameters.migrate_to_chat_id,
        )

    async def close(self) -> None:
        """Let go of the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None
