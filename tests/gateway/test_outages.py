"""Outages of Telegram, messages that always fail, and connections that Telegram closes."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forge_jobs.testing import frozen
from telegram_gateway.bot_api import NoResponse, RequestNotSent
from telegram_gateway.fake import FakeTelegram
from telegram_gateway.fake.server import asgi_app
from telegram_gateway.fake.server import serve_app as serve_at
from tests.gateway.conftest import TOKEN, Bots, post, update
from tests.gateway.fake_api import FakeApi

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ECHO = "bots: {echo: {handler: echo, async: true, requireAuth: false}}"
STEP_S = 10
# The figures of docs/gateway.md.
ATTEMPTS = 20
MAX_CHAT_WAITS_S = 9 * 60


# ---------------------------------------------------------------------- messages


async def test_a_message_that_always_fails_blocks_its_chat_for_minutes_only(
    bots: Bots,
) -> None:
    gateway = bots.gateway(ECHO)
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            bots.api.faults.extend([(500, {"description": "for this message"})] * ATTEMPTS)
            await post(gateway, "echo", update(1, "bad"))
            await post(gateway, "echo", update(2, "good"))
            await gateway.forge.drain()
            assert bots.api.texts() == []
            waited_s = 0
            while bots.api.texts() == []:
                assert waited_s <= MAX_CHAT_WAITS_S
                time.advance(STEP_S)
                waited_s += STEP_S
                await gateway.forge.drain()
    assert bots.api.texts() == ["good"]
    assert waited_s > 5 * 60


async def test_hours_of_502_lose_no_message(bots: Bots) -> None:
    gateway = bots.gateway(ECHO)
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            bots.api.refusal = 502
            for number in range(3):
                await post(gateway, "echo", update(number, str(number)))
            for _ in range(12):
                await gateway.forge.drain()
                time.advance("15m")
            bots.api.refusal = 0
            # Messages are sent within ten seconds once Telegram is available again.
            time.advance(11)
            await gateway.forge.drain()
    assert bots.api.texts() == ["0", "1", "2"]


async def test_hours_without_a_connection_lose_no_message(tmp_path: Path) -> None:
    fake = FakeTelegram()
    bot = fake.bot(TOKEN.format(number=101))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        bots = Bots(FakeApi(f"http://127.0.0.1:{listener.getsockname()[1]}"), tmp_path)
        gateway = bots.gateway(ECHO)
        assert gateway.forge is not None
        with frozen(gateway.forge, at=NOW) as time:
            async with gateway.running(workers=False):
                for number in range(3):
                    fake.say(bot, str(number))
                    await post(gateway, "echo", update(number, str(number)))
                for _ in range(12):
                    await gateway.forge.drain()
                    time.advance("15m")
                async with serve_at(asgi_app(fake), listener):
                    time.advance(11)
                    await gateway.forge.drain()
    assert bot.chat(7).texts() == ["0", "1", "2"]


# ---------------------------------------------------------------------- connections


@dataclass
class ClosingServer:
    """A Bot API with keep-alive connections that the test can close.

    ``drop_next``: the next request is read completely and gets no response.
    """

    port: int = 0
    connections: int = 0
    requests: int = 0
    drop_next: bool = False
    idle: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.idle.add(writer)
                head = await reader.readuntil(b"\r\n\r\n")
                self.idle.discard(writer)
                lines = head.lower().split(b"\r\n")
                length = next(line for line in lines if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.split(b":")[1]))
                self.requests += 1
                if self.drop_next:
                    return
                body = b'{"ok": true, "result": {}}'
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.idle.discard(writer)
            writer.close()

    async def close_idle(self) -> None:
        for writer in [*self.idle]:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def closing_server() -> AsyncIterator[ClosingServer]:
    made = ClosingServer()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.close_idle()
        await server.wait_closed()


async def test_a_connection_closed_by_telegram_is_not_reused(tmp_path: Path) -> None:
    async with closing_server() as api:
        gateway = Bots(FakeApi(f"http://127.0.0.1:{api.port}"), tmp_path).gateway(ECHO)
        (bot,) = gateway.bots
        for _ in range(3):
            await gateway.api.call(bot, "sendMessage", {"text": "once"})
            await api.close_idle()
        assert (api.connections, api.requests) == (3, 3)
        await gateway.api.close()


async def test_a_lost_response_is_not_reported_as_not_sent(tmp_path: Path) -> None:
    async with closing_server() as api:
        gateway = Bots(FakeApi(f"http://127.0.0.1:{api.port}"), tmp_path).gateway(ECHO)
        (bot,) = gateway.bots
        await gateway.api.call(bot, "sendMessage", {"text": "answered"})
        api.drop_next = True
        with pytest.raises(NoResponse) as lost:
            await gateway.api.call(bot, "sendMessage", {"text": "not answered"})
        assert not isinstance(lost.value, RequestNotSent)
        assert api.requests == 2
        await gateway.api.close()


async def test_a_refused_connection_is_reported_as_not_sent(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        gateway = Bots(FakeApi(base), tmp_path).gateway(ECHO)
        (bot,) = gateway.bots
        with pytest.raises(RequestNotSent, match=r"^sendMessage: ConnectError$"):
            await gateway.api.call(bot, "sendMessage", {"text": "never"})
        await gateway.api.close()
