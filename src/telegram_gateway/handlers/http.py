"""The http handler: posts Telegram's bytes, signed, to a service that answers with calls."""

import asyncio
import email.utils
from typing import Final

import httpx2

from forge_jobs import Clock, Dead, Failed
from telegram_gateway.addresses import (
    Endpoint,
    ForbiddenAddress,
    Resolve,
    checked_endpoint,
    resolve_host,
)
from telegram_gateway.calls import Call
from telegram_gateway.config import Bot, HttpTarget
from telegram_gateway.signing import signed_headers
from telegram_gateway.update import Update

from .answers import calls_of
from .form_answers import decode_answer

_MAX_RESPONSE: Final = 64 << 10
_CONNECT_S: Final = 2.0
# Services close idle connections after two seconds at the earliest. A request sent while the server
# closes costs the update an attempt and half a minute.
_KEEPALIVE_S: Final = 1.0
_MAX_WAIT_S: Final = 3_600.0
SECRET_HEADER: Final = "x-telegram-bot-api-secret-token"
_ABORT: Final = ("webhook-delivery", "abort-message")


class HttpHandler:
    """One HTTP client per bot, so that pooled connections belong to one host name only."""

    def __init__(
        self, bot: Bot, target: HttpTarget, *, clock: Clock, resolve: Resolve = resolve_host
    ) -> None:
        self._bot = bot
        self._target = target
        self._clock = clock
        self._resolve = resolve
        self._client: httpx2.AsyncClient | None = None

    async def answer(self, update: Update, attempt: int) -> list[Call]:
        try:
            async with asyncio.timeout(self._target.timeout_s):
                endpoint = await checked_endpoint(
                    self._target.url, self._target.networks, self._resolve
                )
        except ForbiddenAddress as error:
            raise Dead(str(error)) from None
        except OSError:  # TimeoutError is one, too
            raise Failed("the service's name could not be resolved") from None
        try:
            status, headers, body = await self._post(endpoint, update, attempt)
        except httpx2.TimeoutException:
            raise Failed(f"the service did not answer in {self._target.timeout_s:g} s") from None
        except httpx2.HTTPError as error:
            raise Failed(f"the service could not be reached: {type(error).__name__}") from None
        return self._parse_response(status, headers, body, update)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _post(
        self, endpoint: Endpoint, update: Update, attempt: int
    ) -> tuple[int, httpx2.Headers, bytes]:
        if self._client is None:
            limits = httpx2.Limits(
                max_connections=100, max_keepalive_connections=20, keepalive_expiry=_KEEPALIVE_S
            )
            self._client = httpx2.AsyncClient(
                trust_env=False, follow_redirects=False, limits=limits
            )
        limit_s = self._target.timeout_s
        signed = signed_headers(
            self._target.signing,
            message_id=f"{self._bot.id}-{update.id}",
            timestamp=self._clock.now() // 1_000_000,
            body=update.raw,
        )
        request = self._client.build_request(
            "POST",
            endpoint.url,
            content=update.raw,
            headers={
                "host": endpoint.host_header,
                "content-type": "application/json",
                "accept-encoding": "identity",
                "x-bot": self._bot.slug,
                "x-update-id": str(update.id),
                "x-attempt": str(attempt),
                **self._secret_header(),
                **signed,
            },
            extensions={"sni_hostname": endpoint.tls_name},
            timeout=httpx2.Timeout(limit_s, connect=min(_CONNECT_S, limit_s)),
        )
        return await _send_within(self._client, request, limit_s)

    def _secret_header(self) -> dict[str, str]:
        """The header by which bot libraries recognise Telegram; not over plain HTTP to a public
        address, where others could read it."""
        target = self._target
        if target.networks is None and not target.url.lower().startswith("https://"):
            return {}
        return {SECRET_HEADER: self._bot.secrets[0].decode()}

    def _parse_response(
        self, status: int, headers: httpx2.Headers, body: bytes, update: Update
    ) -> list[Call]:
        if headers.get(_ABORT[0], "").lower() == _ABORT[1] or status == 422:
            raise Dead(f"the service refused the update permanently ({status})")
        if not 200 <= status < 300:
            wait_s = self._wait_s(headers) if status in (429, 503) else None
            raise Failed(f"the service answered {status}", retry_after=wait_s)
        if status == 204 or not body.strip():
            return []
        if len(body) > _MAX_RESPONSE:
            raise Dead(f"the answer is longer than {_MAX_RESPONSE:,} bytes")
        return calls_of(decode_answer(headers.get("content-type", ""), body), update)

    def _wait_s(self, headers: httpx2.Headers) -> float | None:
        text = headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit():
            return min(float(text), _MAX_WAIT_S)
        try:
            moment = email.utils.parsedate_to_datetime(text)
        except ValueError:
            return None
        wait_s = moment.timestamp() - self._clock.now() / 1_000_000
        return min(max(wait_s, 0.0), _MAX_WAIT_S)


async def _send_within(
    client: httpx2.AsyncClient, request: httpx2.Request, limit_s: float
) -> tuple[int, httpx2.Headers, bytes]:
    """Send the request and read the response, within one time limit and up to the size limit."""
    try:
        async with asyncio.timeout(limit_s):
            response = await client.send(request, stream=True)
            try:
                body = b""
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > _MAX_RESPONSE:
                        break
                return response.status_code, response.headers, body
            finally:
                await response.aclose()
    except TimeoutError:
        raise httpx2.ReadTimeout("out of time") from None
