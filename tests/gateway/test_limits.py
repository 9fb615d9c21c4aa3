"""Limits: sends per chat, group and bot, the backlog, wrong secrets, refused tokens."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forge_jobs.testing import frozen
from telegram_gateway.flood import chat_limits
from telegram_gateway.gateway import Gateway
from telegram_gateway.storage import gateway_store_at
from tests.gateway.conftest import Bots, post, update
from tests.gateway.fake_api import fake_api

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
ECHO = "bots: {echo: {handler: echo, async: true, requireAuth: false}}"
REFUSED = {"bot": "echo"}


@pytest.fixture
async def bots(tmp_path: Path, store_url: str) -> AsyncIterator[Bots]:
    async with fake_api() as api:
        yield Bots(api, tmp_path, store_url)


async def drain(gateway: Gateway) -> int:
    assert gateway.forge is not None
    return (await gateway.forge.drain()).ran


async def test_two_processes_share_the_limits_of_a_chat_and_a_group(store_url: str) -> None:
    one, two = gateway_store_at(store_url), gateway_store_at(store_url)
    await one.open()
    await two.open()
    try:
        now, person, group = 10**15, chat_limits("1", 7), chat_limits("1", -7)
        assert [await store.acquire(person, now) for store in (one, two, one)] == [0, 0, 0]
        assert await two.acquire(person, now) == SECOND
        assert await one.acquire(person, now + SECOND // 2) == SECOND // 2
        assert await two.acquire(person, now + SECOND) == 0
        assert await one.acquire(chat_limits("2", 7), now) == 0
        for second in range(20):
            store = (one, two)[second % 2]
            assert await store.acquire(group, now + second * SECOND // 2) in (0, SECOND // 2)
        later = now + 60 * SECOND
        taken = [await one.acquire(group, later + second * SECOND) for second in range(40)]
        assert taken.count(0) <= 20 + 40 // 3 + 1
        assert max(taken) <= 3 * SECOND
        # A clock that was wrong for a moment does not block a chat for ever.
        assert await one.acquire(person, now + 10**15) == 0
        assert await two.acquire(person, now) <= SECOND
        await one.purge(now=now + 10**16, wrong_before=0, quarantine_before=0)
        assert await two.acquire(person, now) == 0
    finally:
        await one.close()
        await two.close()


async def test_a_bot_sends_thirty_a_second_over_all_processes(bots: Bots) -> None:
    one, two = bots.gateway(ECHO), bots.gateway(ECHO)
    assert one.forge is not None
    assert two.forge is not None
    with frozen(one.forge, at=NOW) as time, frozen(two.forge, at=NOW) as other:
        async with one.running(workers=False), two.running(workers=False):
            for number in range(50):
                await post(one, "echo", update(number, chat=100 + number))
            for gateway in (one, two):
                await drain(gateway)
            # A process may hold a few permits that it did not use.
            assert 20 <= len(bots.api.texts()) <= 30
            for _ in range(6):
                time.advance(1)
                other.advance(1)
                await drain(two)
    assert sorted(said["chat_id"] for _, _, said in bots.api.calls) == list(range(100, 150))


async def test_503_when_the_backlog_is_full(bots: Bots) -> None:
    gateway = bots.gateway(
        "bots: {echo: {handler: echo, async: true, requireAuth: false, maxWaiting: 3}}"
    )
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            codes = [
                (await post(gateway, "echo", update(number, chat=number + 1))).status_code
                for number in range(5)
            ]
            assert codes == [200, 200, 200, 503, 503]
            await drain(gateway)
            time.advance(3)
            answer = await post(gateway, "echo", update(3, chat=4))
            assert answer.status_code == 200
            await drain(gateway)
    assert len(bots.api.texts()) == 4
    assert gateway.counters.value("gateway_updates_total", bot="echo", outcome="full") == 2


async def test_wrong_secrets_are_limited_and_right_ones_are_not(tmp_path: Path) -> None:
    async with fake_api() as api:
        bots = Bots(api, tmp_path)
        gateway = bots.gateway(ECHO)
        assert gateway.forge is not None
        with frozen(gateway.forge, at=NOW) as time:
            async with gateway.running(workers=False):
                wrong = {"x_telegram_bot_api_secret_token": "wrong"}
                codes = [
                    (await post(gateway, "echo", update(1), **wrong)).status_code for _ in range(25)
                ]
                assert codes == [401] * 20 + [429] * 5
                assert (await post(gateway, "echo", update(1))).status_code == 200
                time.advance(61)
                assert (await post(gateway, "echo", update(1), **wrong)).status_code == 401


@pytest.mark.parametrize("code", [401, 404])
async def test_sends_with_a_refused_token_wait_without_spending_attempts(
    bots: Bots, code: int
) -> None:
    gateway = bots.gateway(ECHO)
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            bots.api.refusal = code
            for number in range(3):
                await post(gateway, "echo", update(number, str(number), chat=number + 1))
            for _ in range(12):
                await drain(gateway)
                time.advance("5m")
            assert gateway.counters.value("gateway_token_refused", **REFUSED) == 1
            assert 'gateway_token_refused{bot="echo"} 1' in gateway.counters.render()
            bots.api.refusal = 0
            for _ in range(3):
                time.advance("5m")
                await drain(gateway)
    assert sorted(bots.api.texts()) == ["0", "1", "2"]
    assert gateway.counters.value("gateway_token_refused", **REFUSED) == 0


async def test_an_unknown_method_kills_only_its_own_job(bots: Bots) -> None:
    bots.api.faults.append((404, {"description": "not found"}))
    gateway = bots.gateway(ECHO)
    async with gateway.running(workers=False):
        await post(gateway, "echo", update(1, "lost"))
        await post(gateway, "echo", update(2, "sent"))
        await drain(gateway)
    assert bots.api.texts() == ["sent"]
    assert "getMe" in bots.api.methods()
