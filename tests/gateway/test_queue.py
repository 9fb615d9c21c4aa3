"""Through the queue, on SQLite and Postgres: retries to the second, one notice per death, order,
floods, expiry."""

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
    async with backend() as made:
        yield made


def http_bot(back: Backend, more: str = "") -> str:
    target = f"{{url: '{back.url}', network: private, signingSecretEnv: SIGNING}}"
    return (
        f"bots: {{back: {{handler: http, async: true, requireAuth: false, http: {target}{more}}}}}"
    )


def made(bots: Bots, text: str) -> Gateway:
    return bots.gateway(text, SIGNING="whsec_" + "QUJD" * 10)


async def drained(gateway: Gateway) -> int:
    assert gateway.forge is not None
    return (await gateway.forge.drain()).ran


async def times_of_tries(gateway: Gateway, time: Time, back: Backend, tries: int) -> list[float]:
    """When the service was asked, in seconds after the first look; each step is one second."""
    found: list[float] = []
    start = time.now()
    while len(found) < tries:
        before = len(back.got)
        await drained(gateway)
        if len(back.got) > before:
            found.append((time.now() - start).total_seconds())
        waits = {1: 30, 2: 120, 3: 600, 4: 3_600}.get(len(found), 0)
        if len(found) < tries:
            time.advance(waits - 1)
            assert await drained(gateway) == 0, "it came too early"
            time.advance(1)
    return found


async def test_retries_come_at_the_exact_times_then_death_and_one_notice(
    bots: Bots, back: Backend
) -> None:
    back.say(500)
    gateway = made(bots, http_bot(back))
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            await post(gateway, "back", update(1))
            times = await times_of_tries(gateway, time, back, 5)
            assert times == [0, 30, 150, 750, 4_350]
            await drained(gateway)
            time.advance("2h")
            assert await drained(gateway) == 0
    assert [headers["x-attempt"] for headers, _ in back.got] == ["1", "2", "3", "4", "5"]
    assert {headers["webhook-id"] for headers, _ in back.got} == {"102-1"}
    [notice] = bots.api.texts()
    assert notice.startswith("Sorry")
    assert "500" not in notice


async def test_the_largest_update_dies_like_any_other(bots: Bots, back: Backend) -> None:
    back.say(422)
    gateway = made(bots, http_bot(back, ", deadMessage: dead"))
    body = update(1, "x" * ((1 << 20) - 300))
    async with gateway.running(workers=False):
        assert (await post(gateway, "back", body)).status_code == 200
        await drained(gateway)
    assert [got for _, got in back.got] == [body]
    assert bots.api.texts() == ["dead"]


async def test_two_workers_tell_of_each_death_once(bots: Bots, back: Backend) -> None:
    back.say(422)
    one, two = made(bots, http_bot(back)), made(bots, http_bot(back))
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
async def test_the_service_s_answer_decides(
    bots: Bots, back: Backend, status: int, body: bytes, headers: dict[str, str], sent: list[str]
) -> None:
    back.say(status, body, **headers)
    gateway = made(bots, http_bot(back, ", deadMessage: dead"))
    async with gateway.running(workers=False):
        await post(gateway, "back", update(1, "é ✓"))
        await drained(gateway)
    assert bots.api.texts() == sent
    assert [body for _, body in back.got] == [update(1, "é ✓")]


async def test_a_service_that_asks_for_patience_gets_it(bots: Bots, back: Backend) -> None:
    back.say(503, retry_after="300")
    back.say(200, b'{"text": "ok"}')
    gateway = made(bots, http_bot(back))
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            await post(gateway, "back", update(1))
            await drained(gateway)
            time.advance(299)
            assert await drained(gateway) == 0
            time.advance(1)
            await drained(gateway)
    assert bots.api.texts() == ["ok"]


async def test_a_dead_service_holds_updates_back_without_costing_attempts(
    bots: Bots, back: Backend
) -> None:
    back.say(500)
    gateway = made(bots, http_bot(back))
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW):
        async with gateway.running(workers=False):
            for number in range(30):
                await post(gateway, "back", update(number, chat=number + 1))
            await drained(gateway)
            queue = gateway.runtimes["back"].queue
            assert queue is not None
            assert queue.breaker.is_open
    assert 10 <= len(back.got) < 25


async def test_answers_of_one_chat_keep_their_order_over_a_flood(bots: Bots) -> None:
    bots.api.faults.append((429, {"description": "slow", "parameters": {"retry_after": 7}}))
    gateway = bots.gateway(ECHO)
    assert gateway.forge is not None
    texts = [str(number) for number in range(8)]
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            for number, text in enumerate(texts):
                await post(gateway, "echo", update(number, text))
            await drained(gateway)
            assert bots.api.texts() == []
            time.advance(6.9)
            await drained(gateway)
            assert bots.api.texts() == []
            for _ in range(20):
                time.advance(1)
                await drained(gateway)
    assert bots.api.texts() == texts


async def test_a_refused_message_dies_and_the_next_one_goes(bots: Bots) -> None:
    bots.api.faults = deque([(403, {"description": "blocked"}), (502, {}), (401, {})])
    gateway = bots.gateway(ECHO)
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            for number in range(3):
                await post(gateway, "echo", update(number, str(number)))
            await drained(gateway)
            for _ in range(10):
                time.advance("5m")
                await drained(gateway)
    assert bots.api.texts() == ["1", "2"]


async def test_a_group_that_moved_is_found_again(bots: Bots) -> None:
    moved = {"description": "upgraded", "parameters": {"migrate_to_chat_id": -1007}}
    bots.api.faults.append((400, moved))
    gateway = bots.gateway(ECHO)
    async with gateway.running(workers=False):
        await post(gateway, "echo", update(1, "x", chat=-7))
        await drained(gateway)
    assert [said["chat_id"] for _, _, said in bots.api.calls] == [-1007]


async def test_strict_waits_for_its_head_and_stop_overtakes(bots: Bots, back: Backend) -> None:
    back.say(500)
    back.say(200, b'{"text": "ok"}')
    gateway = made(bots, http_bot(back, ", ordering: strict, overtaking: [/stop]"))
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            await post(gateway, "back", update(1, "first"))
            await drained(gateway)
            await post(gateway, "back", update(2, "second"))
            await post(gateway, "back", update(3, "/stop@mybot now"))
            await drained(gateway)
            assert _ids(back) == [1, 3]
            time.advance(30)
            await drained(gateway)
    assert _ids(back) == [1, 3, 1, 2]


async def test_what_came_too_late_is_closed_without_a_try(bots: Bots, back: Backend) -> None:
    back.say(200, b'{"text": "late"}')
    gateway = made(bots, http_bot(back))
    assert gateway.forge is not None
    inline = {"update_id": 9, "inline_query": {"id": "1", "from": {"id": 7}, "query": "x"}}
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            await post(gateway, "back", json.dumps(inline).encode())
            old = int(NOW.timestamp()) - 86_000
            await post(gateway, "back", update(1, date=old))
            time.advance("10m")
            await drained(gateway)
    assert back.got == []


async def test_a_program_answers(bots: Bots, tmp_path: Path) -> None:
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
