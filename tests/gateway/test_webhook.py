"""The webhook: each of its responses, and the order of its checks."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.gateway.conftest import SECRET, TOKEN, Bots, post, update
from tests.gateway.fake_api import until

ECHO = "bots: {echo: {handler: echo, async: true, requireAuth: false}}"
SYNC = "bots: {inline: {handler: echo, requireAuth: false}}"


async def test_a_repeated_update_is_echoed_once(bots: Bots) -> None:
    gateway = bots.gateway(ECHO)
    async with gateway.running():
        answers = [await post(gateway, "echo", update(1, "héllo ✓")) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        await until(lambda: bool(bots.api.texts()))
    assert bots.api.texts() == ["héllo ✓"]
    token, _, said = bots.api.calls[-1]
    assert (token, said["chat_id"]) == (TOKEN.format(number=101), 7)
    count = gateway.counters.value
    assert count("gateway_updates_total", bot="echo", outcome="accepted") == 1
    assert count("gateway_updates_total", bot="echo", outcome="duplicate") == 2


async def test_100_parallel_deliveries_are_one_job_and_replays_none(
    bots: Bots, store_url: str
) -> None:
    gateway = bots.gateway(ECHO, DATABASE_URL=store_url)
    async with gateway.running(workers=False):
        answers = await asyncio.gather(*(post(gateway, "echo", update(5)) for _ in range(100)))
        assert {answer.status_code for answer in answers} == {200}
        assert gateway.forge is not None
        report = await gateway.forge.drain()
        assert (report.ran, report.done) == (2, 2)  # the update and its answer
        runtime = gateway.runtimes["echo"]
        for _ in range(1_000):
            await gateway.receiver.receive(runtime, update(5))
        assert (await gateway.forge.drain()).ran == 0
    assert bots.api.texts() == ["hi"]


async def test_another_bot_with_the_same_slug_loses_no_update(bots: Bots, store_url: str) -> None:
    for number in (101, 999):
        token = TOKEN.format(number=number)
        gateway = bots.gateway(ECHO, BOT_ECHO_TOKEN=token, DATABASE_URL=store_url)
        async with gateway.running(workers=False):
            assert (await post(gateway, "echo", update(5))).status_code == 200
            assert gateway.forge is not None
            assert (await gateway.forge.drain()).ran == 2
    assert [token for token, _, _ in bots.api.calls] == [
        TOKEN.format(number=101),
        TOKEN.format(number=999),
    ]


async def test_wrong_secrets_are_refused_before_the_body_is_read(bots: Bots) -> None:
    gateway = bots.gateway(SYNC, DATABASE_URL="")

    async def body() -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")
        yield b""

    transport = httpx2.ASGITransport(app=gateway.app)
    async with (
        gateway.running(),
        httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client,
    ):
        name = "x-telegram-bot-api-secret-token"
        for headers in ({}, {name: "wrong"}, {name: SECRET + "x"}, {name: ""}):
            answer = await client.post("/bot/inline", content=body(), headers=headers)
            assert answer.status_code == 401
        odd = httpx2.Headers([(name.encode(), "é".encode("latin-1"))])
        assert (await client.post("/bot/inline", content=body(), headers=odd)).status_code == 401
        twice = httpx2.Headers([(name, SECRET), (name, SECRET)])
        assert (await client.post("/bot/inline", content=body(), headers=twice)).status_code == 401
        assert (await client.post("/bot/nobody", content=body())).status_code == 404
        assert (await client.get("/bot/inline")).status_code == 405
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 200
        assert "gateway_updates_total" in (await client.get("/metrics")).text


async def test_wrong_content_type_and_large_bodies_are_refused(bots: Bots) -> None:
    gateway = bots.gateway(SYNC, DATABASE_URL="", WEBHOOK_MAX_BODY="2048")

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * 1_000

    async with gateway.running():
        assert (await post(gateway, "inline", b"{}", content_type="text/plain")).status_code == 415
        assert (await post(gateway, "inline", b" " * 2_049)).status_code == 413
        assert (await post(gateway, "inline", chunks())).status_code == 413  # type: ignore[arg-type]
    assert bots.api.calls == []


@pytest.mark.parametrize(
    "body",
    [b"", b"nonsense", b"[]", b'{"update_id": "5"}', b'{"update_id": 1.5}', b"\xff", b"[" * 5_000],
)
async def test_an_invalid_update_is_quarantined_and_acknowledged(bots: Bots, body: bytes) -> None:
    gateway = bots.gateway(ECHO)
    async with gateway.running(workers=False):
        assert (await post(gateway, "echo", body)).status_code == 200
    outcome = {"bot": "echo", "outcome": "quarantined"}
    assert gateway.counters.value("gateway_updates_total", **outcome) == 1


async def test_every_kind_of_update_is_accepted(bots: Bots) -> None:
    gateway = bots.gateway(ECHO)
    kinds = ("message", "callback_query", "poll", "my_chat_member", "of_tomorrow")
    async with gateway.running(workers=False):
        for number, kind in enumerate(kinds, start=2**53):
            body = json.dumps({kind: {"id": "x", "chat": "odd"}, "update_id": number}).encode()
            assert (await post(gateway, "echo", body)).status_code == 200
        assert gateway.forge is not None
        assert (await gateway.forge.drain()).done == len(kinds)
    assert bots.api.calls == []


async def test_503_while_the_store_is_unavailable(bots: Bots, tmp_path: Path) -> None:
    gateway = bots.gateway(ECHO)
    async with gateway.running(workers=False):
        (tmp_path / "gateway.db").unlink()
        answer = await post(gateway, "echo", update(1))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


async def test_503_while_sessions_cannot_be_read(bots: Bots, tmp_path: Path) -> None:
    gateway = bots.gateway("bots: {access: {handler: auth}, echo: {handler: echo, async: true}}")
    async with gateway.running(workers=False):
        with sqlite3.connect(tmp_path / "gateway.db") as database:
            database.execute("DROP TABLE gateway_session")
        database.close()
        assert (await post(gateway, "echo", update(1))).status_code == 503
        assert gateway.forge is not None
        assert (await gateway.forge.drain()).ran == 0


async def test_503_while_draining(bots: Bots) -> None:
    gateway = bots.gateway(ECHO)
    async with gateway.running(workers=False):
        gateway.webhook.draining = True
        assert (await post(gateway, "echo", update(1))).status_code == 503


async def test_only_allowed_users_and_chats_get_replies(bots: Bots) -> None:
    text = "bots: {inline: {handler: echo, requireAuth: false, allowedChats: [7]}}"
    gateway = bots.gateway(text, DATABASE_URL="", ALLOWED_USERS="7, 8")
    async with gateway.running():
        for number, (chat, user) in enumerate([(7, 7), (7, 9), (8, 8), (7, 8)]):
            answer = await post(gateway, "inline", update(number, f"{user}", chat=chat, user=user))
            assert answer.status_code == 200
    assert bots.api.texts() == ["7", "8"]


async def test_a_repeated_inline_update_is_answered_once(bots: Bots) -> None:
    gateway = bots.gateway(SYNC, DATABASE_URL="")
    async with gateway.running():
        for _ in range(3):
            assert (await post(gateway, "inline", update(4, "once"))).status_code == 200
    assert bots.api.texts() == ["once"]
