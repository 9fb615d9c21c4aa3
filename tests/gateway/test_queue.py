"""Queued bots on SQLite and Postgres: retry times, one notice per dead update, order, 429."""

import asyncio
import json
import sys
from collections import deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forge_jobs.testing import Time, frozen
from telegram_gateway.gateway import Gateway
from tests.gateway.backend import Backend, backend
from tests.gateway.conftest import Bots, post, update
from tests.gateway.fake_api import fake_api, until

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ECHO = "bots: {echo: {handler: echo, async: true, requireAuth: false}}"


@pytest.fixture
async def bots(tmp_path: Path, store_url: str) -> AsyncIterator[Bots]:
    async with fake_api() as api:
        yield Bots(api, tmp_path, store_url)


@pytest.fixture
async def back() -> AsyncIterator[Backend]:
    async with backend() as make_gateway:
        yield make_gateway


def http_bot(back: Backend, more: str = "") -> str:
    target = f"{{url: '{back.url}', network: private, signingSecretEnv: SIGNING}}"
    return (
        f"bots: {{back: {{handler: http, async: true, requireAuth: false, http: {target}{more}}}}}"
    )


def make_gateway(bots: Bots, text: str) -> Gateway:
    return bots.gateway(text, SIGNING="whsec_" + "QUJD" * 10)


async def drain(gateway: Gateway) -> int:
    assert gateway.forge is not None
    return (await gateway.forge.drain()).ran


async def times_of_attempts(gateway: Gateway, time: Time, back: Backend, tries: int) -> list[float]:
    """When the service was called, in seconds since the start; checks that no call is early."""
    found: list[float] = []
    start = time.now()
    while len(found) < tries:
        before = len(back.got)
        await drain(gateway)
        if len(back.got) > before:
            found.append((time.now() - start).total_seconds())
        waits = {1: 30, 2: 120, 3: 600, 4: 3_600}.get(len(found), 0)
        if len(found) < tries:
            time.advance(waits - 1)
            assert await drain(gateway) == 0, "the retry ran too early"
            time.advance(1)
    return found


async def test_retries_run_at_the_exact_times_then_dead_and_one_notice(
    bots: Bots, back: Backend
) -> None:
    back.say(500)
    gateway = make_gateway(bots, http_bot(back))
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            await post(gateway, "back", update(1))
            times = await times_of_attempts(gateway, time, back, 5)
            assert times == [0, 30, 150, 750, 4_350]
            await drain(gateway)
            time.advance("2h")
            assert await drain(gateway) == 0
    assert [headers["x-attempt"] for headers, _ in back.got] == ["1", "2", "3", "4", "5"]
    assert {headers["webhook-id"] for headers, _ in back.got} == {"102-1"}
    [notice] = bots.api.texts()
    assert notice.startswith("Sorry")
    assert "answered 500" not in notice


async def test_the_largest_update_gets_a_dead_notice(bots: Bots, back: Backend) -> None:
    back.say(422)
    gateway = make_gateway(bots, http_bot(back, ", deadMessage: dead"))
    body = update(1, "x" * ((1 << 20) - 300))
    async with gateway.running(workers=False):
        assert (await post(gateway, "back", body)).status_code == 200
        await drain(gateway)
    assert [got for _, got in back.got] == [body]
    assert bots.api.texts() == ["dead"]


async def test_two_workers_send_one_notice_per_dead_update(bots: Bots, back: Backend) -> None:
    back.say(422)
    one, two = make_gateway(bots, http_bot(back)), make_gateway(bots, http_bot(back))
    async with one.running(), two.running():
        for number in range(20):
            gateway = (one, two)[number % 2]
            body = update(number, chat=100 + number)
            assert (await post(gateway, "back", body)).status_code == 200
        await until(lambda: len(bots.api.texts()) >= 20)
        await asyncio.sleep(0.3)
    chats = [said["chat_id"] for _, _, said in bots.api.calls]
    assert sorted(chats) == [100 + number for number in range(20)]
    assert len(back.got) == 20


@pytest.mark.parametrize(
    ("status", "body", "headers", "sent"),
    [
        (200, b'{"text": "yes"}', {}, ["yes"]),
        (200, b"", {}, []),
        (204, b"", {}, []),
        (200, b"{}", {}, []),
        (200, b'{"text": ""}', {}, []),
        (200, b"yes", {}, ["dead"]),
        (200, b"[1]", {}, ["dead"]),
        (422, b"", {}, ["dead"]),
        (500, b"", {"webhook_delivery": "abort-message"}, ["dead"]),
        (200, b'{"messages": [{"method": "setWebhook"}]}', {}, ["dead"]),
        (200, b'{"messages": [{"method": "sendX", "parameters": {}}]}', {}, ["dead"]),
        (200, b'{"text": "' + b"x" * 70_000 + b'"}', {}, ["dead"]),
        (
            200,
            b'{"messages": [{"method": "sendMessage", "parameters": {"text": "a"}},'
            b' {"method": "sendMessage", "parameters": {"text": "b", "chat_id": 7}}]}',
            {},
            ["a", "b"],
        ),
    ],
)  # fmt: skip
async def test_the_answer_of_the_service_decides_the_outcome(
    bots: Bots, back: Backend, status: int, body: bytes, headers: dict[str, str], sent: list[str]
) -> None:
    back.say(status, body, **headers)
    gateway = make_gateway(bots, http_bot(back, ", deadMessage: dead"))
    async with gateway.running(workers=False):
        await post(gateway, "back", update(1, "é ✓"))
        await drain(gateway)
    assert bots.api.texts() == sent
    assert [body for _, body in back.got] == [update(1, "é ✓")]


async def test_retry_after_of_the_service_is_obeyed(bots: Bots, back: Backend) -> None:
    back.say(503, retry_after="300")
    back.say(200, b'{"text": "ok"}')
    gateway = make_gateway(bots, http_bot(back))
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            await post(gateway, "back", update(1))
            await drain(gateway)
            time.advance(299)
            assert await drain(gateway) == 0
            time.advance(1)
            await drain(gateway)
    assert bots.api.texts() == ["ok"]


async def test_the_open_breaker_delays_updates_without_spending_attempts(
    bots: Bots, back: Backend
) -> None:
    back.say(500)
    gateway = make_gateway(bots, http_bot(back))
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW):
        async with gateway.running(workers=False):
            for number in range(30):
                await post(gateway, "back", update(number, chat=number + 1))
            await drain(gateway)
            queue = gateway.runtimes["back"].queue
            assert queue is not None
            assert queue.run.breaker.is_open
    assert 10 <= len(back.got) < 25


async def test_replies_of_one_chat_keep_their_order_after_a_429(bots: Bots) -> None:
    bots.api.faults.append((429, {"description": "slow", "parameters": {"retry_after": 7}}))
    gateway = bots.gateway(ECHO)
    assert gateway.forge is not None
    texts = [str(number) for number in range(8)]
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            for number, text in enumerate(texts):
                await post(gateway, "echo", update(number, text))
            await drain(gateway)
            assert bots.api.texts() == []
            time.advance(6.9)
            await drain(gateway)
            assert bots.api.texts() == []
            for _ in range(20):
                time.advance(1)
                await drain(gateway)
    assert bots.api.texts() == texts


async def test_a_refused_message_is_dead_and_the_next_one_is_sent(bots: Bots) -> None:
    bots.api.faults = deque([(403, {"description": "blocked"}), (502, {}), (401, {})])
    gateway = bots.gateway(ECHO)
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            for number in range(3):
                await post(gateway, "echo", update(number, str(number)))
            await drain(gateway)
            for _ in range(10):
                time.advance("5m")
                await drain(gateway)
    assert bots.api.texts() == ["1", "2"]


async def test_a_migrated_group_gets_the_message(bots: Bots) -> None:
    moved = {"description": "upgraded", "parameters": {"migrate_to_chat_id": -1007}}
    bots.api.faults.append((400, moved))
    gateway = bots.gateway(ECHO)
    async with gateway.running(workers=False):
        await post(gateway, "echo", update(1, "x", chat=-7))
        await drain(gateway)
    assert [said["chat_id"] for _, _, said in bots.api.calls] == [-1007]


async def test_strict_order_waits_for_a_retry_and_stop_overtakes(bots: Bots, back: Backend) -> None:
    back.say(500)
    back.say(200, b'{"text": "ok"}')
    gateway = make_gateway(bots, http_bot(back, ", ordering: strict, overtaking: [/stop]"))
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            await post(gateway, "back", update(1, "first"))
            await drain(gateway)
            await post(gateway, "back", update(2, "second"))
            await post(gateway, "back", update(3, "/stop@mybot now"))
            await drain(gateway)
            assert _ids(back) == [1, 3]
            time.advance(30)
            await drain(gateway)
    assert _ids(back) == [1, 3, 1, 2]


async def test_the_command_handler_replies(bots: Bots, tmp_path: Path) -> None:
    program = tmp_path / "bot.py"
    program.write_text(
        "import json\n"
        "print('{\"ready\": true}', flush=True)\n"
        "while True:\n"
        "    job = json.loads(input())\n"
        "    said = job['payload']['update']['message']['text'][::-1]\n"
        "    answer = {'id': job['id'], 'status': 'ok', 'result': {'text': said}}\n"
        "    print(json.dumps(answer), flush=True)\n",
        encoding="utf-8",
    )
    command = f"command: {{argv: ['{sys.executable}', '{program}']}}"
    text = f"bots: {{echo: {{handler: command, async: true, requireAuth: false, {command}}}}}"
    gateway = bots.gateway(text)
    async with gateway.running():
        await post(gateway, "echo", update(1, "abc"))
        await until(lambda: bool(bots.api.texts()))
    assert bots.api.texts() == ["cba"]


def _ids(back: Backend) -> list[int]:
    return [json.loads(body)["update_id"] for _, body in back.got]
