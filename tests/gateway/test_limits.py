"""What is bounded: sends per chat, group and bot, updates that wait, strangers, refused tokens."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forge_jobs.testing import frozen
from telegram_gateway.flood import allowances
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


async def drained(gateway: Gateway) -> int:
    assert gateway.forge is not None
    return (await gateway.forge.drain()).ran


async def test_two_processes_share_the_limits_of_a_chat_and_a_group(store_url: str) -> None:
    one, two = gateway_store_at(store_url), gateway_store_at(store_url)
    await one.open()
    await two.open()
    try:
        now, person, group = 10**15, allowances("1", 7), allowances("1", -7)
        assert [await runtime.take(person, now) for runtime in (one, two, one)] == [0, 0, 0]
        assert await two.take(person, now) == SECOND
        assert await one.take(person, now + SECOND // 2) == SECOND // 2
        assert await two.take(person, now + SECOND) == 0
        assert await one.take(allowances("2", 7), now) == 0
        for second in range(20):
            runtime = (one, two)[second % 2]
            assert await runtime.take(group, now + second * SECOND // 2) in (0, SECOND // 2)
        later = now + 60 * SECOND
        taken = [await one.take(group, later + second * SECOND) for second in range(40)]
        assert taken.count(0) <= 20 + 40 // 3 + 1
        assert max(taken) <= 3 * SECOND
        # A clock that was wrong for a moment does not silence a chat for ever.
        assert await one.take(person, now + 10**15) == 0
        assert await two.take(person, now) <= SECOND
        await one.purge(now=now + 10**16, wrong_before=0, quarantine_before=0)
        assert await two.take(person, now) == 0
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
                await drained(gateway)
            # A process may hold a few permits that it did not use.
            assert 20 <= len(bots.api.texts()) <= 30
            for _ in range(6):
                time.advance(1)
                other.advance(1)
                await drained(two)
    assert sorted(said["chat_id"] for _, _, said in bots.api.calls) == list(range(100, 150))


async def test_when_too_many_wait_telegram_keeps_the_next(bots: Bots) -> None:
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
            await drained(gateway)
            time.advance(3)
            answer = await post(gateway, "echo", update(3, chat=4))
            assert answer.status_code == 200
            await drained(gateway)
    assert len(bots.api.texts()) == 4
    assert gateway.counters.value("gateway_updates_total", bot="echo", outcome="full") == 2


async def test_who_guesses_secrets_is_slowed_down_and_telegram_is_not(tmp_path: Path) -> None:
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
async def test_sends_of_a_refused_token_wait_and_cost_nothing(bots: Bots, code: int) -> None:
    gateway = bots.gateway(ECHO)
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            bots.api.refusal = code
            for number in range(3):
                await post(gateway, "echo", update(number, str(number), chat=number + 1))
            for _ in range(12):
                await drained(gateway)
                time.advance("5m")
            assert gateway.counters.value("gateway_token_refused", **REFUSED) == 1
            assert 'gateway_token_refused{bot="echo"} 1' in gateway.counters.page()
            bots.api.refusal = 0
            for _ in range(3):
                time.advance("5m")
                await drained(gateway)
    assert sorted(bots.api.texts()) == ["0", "1", "2"]
    assert gateway.counters.value("gateway_token_refused", **REFUSED) == 0


async def test_a_method_that_is_not_found_dies_alone(bots: Bots) -> None:
    bots.api.faults.append((404, {"description": "not found"}))
    gateway = bots.gateway(ECHO)
    async with gateway.running(workers=False):
        await post(gateway, "echo", update(1, "lost"))
        await post(gateway, "echo", update(2, "sent"))
        await drained(gateway)
    assert bots.api.texts() == ["sent"]
    assert "getMe" in bots.api.methods()
