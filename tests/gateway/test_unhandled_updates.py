"""Updates that cannot be handled: tried five times, then dead, and their chat is told once (G2)."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forge_jobs import JobStatus
from forge_jobs.core.job import JobRecord
from forge_jobs.core.selection import BulkAction, Filter, Selection
from forge_jobs.testing import Time, frozen
from telegram_gateway.config import load
from telegram_gateway.gateway import Gateway
from tests.gateway.backend import Backend, backend
from tests.gateway.conftest import Bots, post, update
from tests.gateway.fake_api import FakeApi, fake_api

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ATTEMPTS = 5
# The retries of one update take 72.5 minutes.
MAX_RETRIES_S = 2 * 3_600
CHATS = 60


@pytest.fixture
async def bots(tmp_path: Path, store_url: str) -> AsyncIterator[Bots]:
    async with fake_api() as api:
        yield Bots(api, tmp_path, store_url)


@pytest.fixture
async def back() -> AsyncIterator[Backend]:
    async with backend() as service:
        yield service


def http_bot(back: Backend, more: str = "") -> str:
    target = f"{{url: '{back.url}', network: private}}"
    return (
        f"bots: {{back: {{handler: http, async: true, requireAuth: false, http: {target}{more}}}}}"
    )


def callback_query(number: int, *, chat: int = 7) -> bytes:
    message = {"message_id": 1, "date": 1, "chat": {"id": chat, "type": "private"}}
    query = {"id": str(number), "from": {"id": chat}, "data": "buy", "message": message}
    return json.dumps({"update_id": number, "callback_query": query}).encode()


async def updates_of(gateway: Gateway) -> list[JobRecord]:
    assert gateway.forge is not None
    store = await gateway.forge.aready()
    page = await store.jobs.page(Filter(queue="updates.back"), limit=1_000)
    return list(page.jobs)


async def run_for(gateway: Gateway, time: Time, seconds: int, *, step: int) -> None:
    assert gateway.forge is not None
    for _ in range(0, seconds, step):
        await gateway.forge.drain()
        time.advance(step)
    await gateway.forge.drain()


def told_chats(bots: Bots) -> Counter[int]:
    return Counter(said["chat_id"] for _, name, said in bots.api.calls if name == "sendMessage")


async def test_g2_every_chat_is_tried_five_times_and_told_once_in_an_outage(
    bots: Bots, back: Backend
) -> None:
    back.say(500)
    gateway = bots.gateway(http_bot(back))
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            for number in range(CHATS):
                assert (await post(gateway, "back", update(number, chat=number + 1))).is_success
            await run_for(gateway, time, MAX_RETRIES_S, step=30)
            jobs = await updates_of(gateway)
    assert {job.status for job in jobs} == {JobStatus.DEAD}
    assert {job.attempts for job in jobs} == {ATTEMPTS}
    assert told_chats(bots) == {number + 1: 1 for number in range(CHATS)}
    assert len(back.got) == CHATS * ATTEMPTS


@pytest.mark.parametrize(
    ("body", "wait_s"),
    [(callback_query(1), 151), (update(1), 86_401)],
    ids=["callback-query", "message"],
)
async def test_g2_an_update_given_up_for_its_age_is_dead_and_its_chat_is_told(
    bots: Bots, back: Backend, body: bytes, wait_s: int
) -> None:
    back.say(200, b'{"text": "late"}')
    gateway = bots.gateway(http_bot(back))
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            assert (await post(gateway, "back", body)).is_success
            time.advance(wait_s)
            await run_for(gateway, time, 60, step=30)
            [job] = await updates_of(gateway)
    assert job.status is JobStatus.DEAD
    assert "older than" in (job.last_error or "")
    assert back.got == []
    assert told_chats(bots) == {7: 1}
    assert bots.api.texts()[0].startswith("Sorry")


async def test_g2_a_message_that_telegram_delivers_a_day_late_is_handled(
    bots: Bots, back: Backend
) -> None:
    back.say(200, b'{"text": "ok"}')
    gateway = bots.gateway(http_bot(back))
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            sent_at = int(NOW.timestamp()) - 86_000
            assert (await post(gateway, "back", update(1, date=sent_at))).is_success
            time.advance("10m")
            await run_for(gateway, time, 60, step=30)
    assert bots.api.texts() == ["ok"]


async def test_g2_an_operators_retry_runs_an_update_that_was_given_up_for_its_age(
    bots: Bots, back: Backend
) -> None:
    back.say(500)
    back.say(200, b'{"text": "late"}')
    gateway = bots.gateway(http_bot(back))
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            assert (await post(gateway, "back", callback_query(1))).is_success
            time.advance(200)
            await run_for(gateway, time, 60, step=30)
            [job] = await updates_of(gateway)
            assert job.status is JobStatus.DEAD
            store = await gateway.forge.aready()
            await store.jobs.act(BulkAction.RETRY, Selection(ids=(job.id,)), reason="", limit=1)
            # The first attempt after the retry fails, the second one succeeds.
            await run_for(gateway, time, 120, step=30)
            [job] = await updates_of(gateway)
    assert job.status is JobStatus.DONE
    assert len(back.got) == 2
    assert bots.api.texts()[-1] == "late"


async def test_g2_an_open_breaker_lets_every_update_age_and_tells_its_chat(
    bots: Bots, back: Backend
) -> None:
    back.say(500)
    gateway = bots.gateway(http_bot(back))
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            for number in range(CHATS):
                body = callback_query(number, chat=number + 1)
                assert (await post(gateway, "back", body)).is_success
            # No update of this test can be tried five times within its 150 s.
            await run_for(gateway, time, 1_800, step=10)
            jobs = await updates_of(gateway)
    assert {job.status for job in jobs} == {JobStatus.DEAD}
    assert told_chats(bots) == {number + 1: 1 for number in range(CHATS)}


async def test_g2_a_dead_update_of_a_bot_that_tells_nobody_sends_nothing(
    bots: Bots, back: Backend
) -> None:
    back.say(422)
    gateway = bots.gateway(http_bot(back, ", notifyOnDead: false"))
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            assert (await post(gateway, "back", update(1))).is_success
            await run_for(gateway, time, 60, step=30)
            [job] = await updates_of(gateway)
    assert job.status is JobStatus.DEAD
    assert told_chats(bots) == {}


def test_g2_retries_that_outlast_an_update_are_a_warning(tmp_path: Path) -> None:
    bots = Bots(FakeApi(), tmp_path)
    for attempts, warned in ((27, False), (28, True)):
        text = f"bots: {{echo: {{handler: echo, requireAuth: false, maxAttempts: {attempts}}}}}"
        warnings = load(bots.environment(text))[2]
        assert [line for line in warnings if "given up after 24 h" in line] == (
            ["bots.echo.backoff: the retries take 24.2 h, but an update is given up after 24 h"]
            if warned
            else []
        )
