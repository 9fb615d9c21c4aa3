"""Inline bots while the store is unavailable: a stopped or unresponsive server, a locked or broken
file. They respond in time; updates that need the store get 503."""

import asyncio
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from forge_jobs.testing import frozen
from telegram_gateway.gateway import Gateway
from telegram_gateway.storage.webhook_cache import SESSION_CACHE_S
from tests.gateway.conftest import AUTH_SECRET, Bots, post, update
from tests.postgres.server import PrivateServer, private_server

BOTS = """bots:
  inline: {handler: echo, requireAuth: false}
  echo: {handler: echo}
  access: {handler: auth}
"""
# A second for the store, and the rest for a busy machine; Telegram waits 60 s.
MAX_RESPONSE_S = 5.0
OTHER_USER = {"chat": 8, "user": 8}


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with private_server() as made:
        yield made


@contextmanager
def stopped(server: PrivateServer) -> Iterator[None]:
    server.stop(immediate=True)
    try:
        yield
    finally:
        server.start()


@contextmanager
def silent(server: PrivateServer) -> Iterator[None]:
    first = psutil.Process(server.pid)
    processes = [first, *first.children(recursive=True)]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def broken(file: Path) -> Iterator[None]:
    tables = ("gateway_flood", "gateway_session")
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        for table in tables:
            other.execute(f"ALTER TABLE {table} RENAME TO hidden_{table}")
        yield
        for table in tables:
            other.execute(f"ALTER TABLE hidden_{table} RENAME TO {table}")


class Outage(NamedTuple):
    """The URL of a store, and how it becomes unavailable."""

    url: str
    unavailable: AbstractContextManager[None]
    readable: bool = False


@pytest.fixture(params=["stopped", "silent", "locked", "broken"])
def outage(request: pytest.FixtureRequest, tmp_path: Path) -> Outage:
    file = tmp_path / "gateway.db"
    match request.param:
        case "locked":
            return Outage(f"sqlite:///{file}", locked(file), readable=True)
        case "broken":
            return Outage(f"sqlite:///{file}", broken(file))
        case way:
            server = request.getfixturevalue("server")
            url = server.url(schema=f"{way}_{tmp_path.name[:20]}".lower())
            return Outage(url, stopped(server) if way == "stopped" else silent(server))


async def post_in_time(gateway: Gateway, slug: str, body: bytes) -> int:
    began = time.monotonic()
    answer = await post(gateway, slug, body)
    assert time.monotonic() - began < MAX_RESPONSE_S
    return answer.status_code


async def post_until_accepted(gateway: Gateway, slug: str, body: bytes) -> None:
    """Redeliver until it is acknowledged, as Telegram does."""
    async with asyncio.timeout(60):
        while (await post(gateway, slug, body)).status_code != 200:
            await asyncio.sleep(0.2)


@pytest.mark.processes
async def test_g1_an_inline_echo_replies_during_an_outage_of_the_store(
    bots: Bots, outage: Outage
) -> None:
    gateway = bots.gateway(BOTS, DATABASE_URL=outage.url)
    async with gateway.running():
        assert await post_in_time(gateway, "inline", update(1, "before")) == 200
        with outage.unavailable:
            for number in range(2, 7):
                assert (
                    await post_in_time(gateway, "inline", update(number, "away", chat=number))
                    == 200
                )
            at_once = [update(number, "at once", chat=number) for number in range(7, 17)]
            answers = await asyncio.gather(
                *(post_in_time(gateway, "inline", body) for body in at_once)
            )
            assert set(answers) == {200}
            # A handled update is a duplicate, with or without a store.
            assert await post_in_time(gateway, "inline", update(2, "away", chat=2)) == 200
        await post_until_accepted(gateway, "inline", update(17, "after", chat=17))
    assert bots.api.texts() == ["before", *["away"] * 5, *["at once"] * 10, "after"]


@pytest.mark.processes
async def test_g1_cached_sessions_are_valid_during_an_outage_of_the_store(
    bots: Bots, outage: Outage
) -> None:
    gateway = bots.gateway(BOTS, DATABASE_URL=outage.url)
    async with gateway.running(workers=False):
        for number, who in ((1, {}), (2, OTHER_USER)):
            assert (
                await post_in_time(gateway, "access", update(number, f"/auth {AUTH_SECRET}", **who))
                == 200
            )
        assert await post_in_time(gateway, "echo", update(3, "known")) == 200
        uncached = update(4, "not known here", **OTHER_USER)
        with outage.unavailable:
            assert await post_in_time(gateway, "echo", update(5, "known")) == 200
            # A locked file can still be read, so only the send limits are unavailable.
            assert await post_in_time(gateway, "echo", uncached) == (
                200 if outage.readable else 503
            )
        await post_until_accepted(gateway, "echo", uncached)
    assert bots.api.texts() == ["known", "known", "not known here"]


async def test_g1_an_ended_or_outdated_session_is_not_valid(bots: Bots, tmp_path: Path) -> None:
    gateway = bots.gateway(BOTS)
    assert gateway.forge is not None
    with frozen(gateway.forge) as clock:
        async with gateway.running(workers=False):
            assert await post_in_time(gateway, "access", update(1, f"/auth {AUTH_SECRET}")) == 200
            assert await post_in_time(gateway, "echo", update(2, "in")) == 200
            with broken(tmp_path / "gateway.db"):
                assert await post_in_time(gateway, "echo", update(3, "in")) == 200
                clock.advance(SESSION_CACHE_S + 1)
                assert await post_in_time(gateway, "echo", update(4, "too late")) == 503
            assert await post_in_time(gateway, "echo", update(5, "in")) == 200
            assert await post_in_time(gateway, "access", update(6, "/logout")) == 200
            with broken(tmp_path / "gateway.db"):
                assert await post_in_time(gateway, "echo", update(7, "out")) == 503
    assert bots.api.texts() == ["in"] * 3
