"""Commands, polling, janitor, health, and a real process that stops on SIGTERM."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from forge_jobs import JobStatus
from forge_jobs.testing import frozen
from telegram_gateway.calls import Call
from telegram_gateway.cli import app
from telegram_gateway.gateway import Gateway
from telegram_gateway.handlers.echo import Echo
from telegram_gateway.janitor import Janitor
from telegram_gateway.polling import poll
from telegram_gateway.update import Update
from telegram_gateway.webhook_status import read_webhook
from tests.gateway.conftest import SECRET, TOKEN, Bots, post, update
from tests.gateway.fake_api import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ECHO = "bots: {echo: {handler: echo, async: true, requireAuth: false}}"


class NoReply:
    """A reply that does nothing."""

    def enqueue_in(self, tx: object) -> None:
        return

    async def aenqueue_in(self, tx: object) -> None:
        return

    async def aenqueue(self) -> None:
        return


async def run(bots: Bots, *words: str, **variables: str) -> tuple[int, str]:
    env = {**bots.environment(ECHO, PUBLIC_URL="https://tg.example", **variables)}
    found = await asyncio.to_thread(CliRunner().invoke, app, list(words), None, env)
    for secret in (SECRET, TOKEN.format(number=101)):
        assert secret not in found.output
    return found.exit_code, found.output


async def test_commands(bots: Bots, tmp_path: Path) -> None:
    code, text = await run(bots, "check")
    assert code == 0
    assert "bot       echo: echo, queue, serial, open, webhook" in text
    assert (await run(bots, "webhook", "set", "--dry-run"))[0] == 0
    assert bots.api.webhook == {}
    assert (await run(bots, "webhook", "set"))[0] == 0
    assert bots.api.webhook == {
        "url": "https://tg.example/bot/echo",
        "secret_token": SECRET,
        "allowed_updates": ["message", "edited_message", "callback_query"],
        "max_connections": 40,
    }
    assert "https://tg.example/bot/echo, 0 waiting" in (await run(bots, "webhook", "info"))[1]
    assert (await run(bots, "webhook", "delete", "--bot", "echo"))[0] == 0
    assert (await run(bots, "send", "echo", "7", "hi"))[0] == 0
    assert bots.api.texts() == ["hi"]
    assert (await run(bots, "send", "nobody", "7", "hi"))[0] == 2
    gateway = bots.gateway(ECHO)
    async with gateway.running(workers=False):
        await post(gateway, "echo", update(1))
    listed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "telegram_gateway", "jobs", "list", "--json"],
        env={**os.environ, **bots.environment(ECHO)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    assert "update.echo.echo" in listed.stdout
    code, text = await run(bots, "check", BOT_ECHO_SECRET="short")
    assert code == 2
    assert "BOT_ECHO_SECRET needs 32" in text
    made = CliRunner().invoke(app, ["secret", "new"]).output.strip()
    assert len(made) == 43
    assert made != CliRunner().invoke(app, ["secret", "new"]).output.strip()


async def test_webhook_set_waits_after_a_429(bots: Bots) -> None:
    bots.api.rate_limited = 1
    assert (await run(bots, "webhook", "set"))[0] == 0
    assert bots.api.webhook["secret_token"] == SECRET
    bots.api.updates = [{"update_id": number} for number in range(101)]
    assert "more than 100 updates are pending" in (await run(bots, "webhook", "info"))[1]


@pytest.mark.processes
async def test_forget_deletes_the_jobs_and_session_of_a_user(bots: Bots) -> None:
    gateway = bots.gateway(ECHO)
    async with gateway.running(workers=False):
        await post(gateway, "echo", update(1, chat=7, user=7))
        await post(gateway, "echo", update(2, chat=-5, user=7))
        await post(gateway, "echo", update(3, chat=-5, user=8))
        await gateway.storage.start_session(7, 2**60, NoReply())
        env = {**os.environ, **bots.environment(ECHO)}
        assert (await run(bots, "jobs", "forget", "--user"))[0] == 2
        command = [sys.executable, "-m", "telegram_gateway", "jobs", "forget", "--user", "7"]
        process = await asyncio.create_subprocess_exec(
            *command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        assert await process.wait() == 0
        assert await gateway.storage.session_until(7, 0) is None
        assert gateway.forge is not None
        await gateway.forge.drain()
    assert [said["chat_id"] for _, _, said in bots.api.calls] == [-5]


async def test_the_webhook_status_is_exported_as_metrics(bots: Bots) -> None:
    bots.api.webhook = {"last_error_date": 1_700_000_000, "last_error_message": "Bad Gateway"}
    bots.api.updates = [{"update_id": 1}]
    gateway = bots.gateway(ECHO)
    async with gateway.running(workers=False):
        logged: dict[str, float] = {}
        for _ in range(2):
            await read_webhook(gateway, gateway.bots[0], logged)
        bots.api.refusal = 401
        await read_webhook(gateway, gateway.bots[0], logged)
    page = gateway.counters.render()
    assert 'gateway_webhook_pending_updates{bot="echo"} 1\n' in page
    assert 'gateway_webhook_last_error_timestamp_seconds{bot="echo"} 1700000000\n' in page
    assert logged == {"echo": 1_700_000_000}


async def test_admin_pages_need_the_admin_token(bots: Bots) -> None:
    for variable, token, code in (
        ("", "an-admin-token-of-ours", 404),
        ("an-admin-token-of-ours", "another-token", 401),
        ("an-admin-token-of-ours", "an-admin-token-of-ours", 200),
    ):
        gateway = bots.gateway(ECHO, ADMIN_TOKEN=variable)
        transport = httpx2.ASGITransport(app=gateway.app)
        async with (
            gateway.running(workers=False),
            httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client,
        ):
            headers = {"authorization": f"Bearer {token}"}
            assert (await client.get("/admin/api/jobs", headers=headers)).status_code == code
            assert (await client.get("/admin/api/jobs")).status_code in (401, 404)


async def test_mission_control_finds_an_update_by_bot_chat_and_number(bots: Bots) -> None:
    gateway = bots.gateway(ECHO, ADMIN_TOKEN="an-admin-token-of-ours")
    transport = httpx2.ASGITransport(app=gateway.app)
    headers = {"authorization": "Bearer an-admin-token-of-ours"}
    async with (
        gateway.running(workers=False),
        httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client,
    ):
        for number in (41, 42):
            await post(gateway, "echo", update(number, chat=number * 10, user=number))
        for tag, found in (
            ("bot:echo", 2),
            ("chat:420", 1),
            ("update:42", 1),
            ("user:42", 1),
            ("chat:7", 0),
        ):
            answer = await client.get("/admin/api/jobs", params={"tag": tag}, headers=headers)
            assert len(answer.json()["rows"]) == found, (tag, answer.text)


async def test_workers_use_the_configured_heartbeat_interval(bots: Bots) -> None:
    gateway = bots.gateway(ECHO, LEASE="600s", HEARTBEAT="100ms")
    assert gateway.forge is not None
    seen: set[int] = set()
    async with gateway.running(), asyncio.timeout(30):
        store = await gateway.forge.aready()
        while len(seen) < 4:
            seen.update(process.beat_at for process in await store.processes.all())
            await asyncio.sleep(0.05)


async def test_an_update_that_hangs_times_out_and_is_retried(
    bots: Bots, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, tries = Echo.answer, list[int]()

    async def answer(self: Echo, update: Update, attempt: int) -> list[Call]:
        tries.append(attempt)
        if attempt == 1:
            await asyncio.sleep(60)
        return await whole(self, update, attempt)

    monkeypatch.setattr(Echo, "answer", answer)
    text = "bots: {echo: {handler: echo, async: true, requireAuth: false, backoff: [100ms]}}"
    gateway = bots.gateway(text, QUEUE_STUCK_TIMEOUT="1s")
    async with gateway.running():
        await post(gateway, "echo", update(1, "at last"))
        await until(lambda: bots.api.texts() == ["at last"])
    assert tries == [1, 2]


@pytest.mark.processes
async def test_a_polling_process_stops_on_sigterm(bots: Bots, tmp_path: Path) -> None:
    bots.api.updates = [{"update_id": 5, "message": {"chat": {"id": 7}, "text": "fetched"}}]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "telegram_gateway",
        "poll",
        env={**os.environ, **bots.environment(ECHO)},
        stderr=subprocess.DEVNULL,
    )
    try:
        await until(lambda: bots.api.texts() == ["fetched"], 60)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_polling_stores_updates_once_and_confirms_them(bots: Bots) -> None:
    bots.api.updates = [
        {"update_id": number, "message": {"chat": {"id": 7}, "text": str(number)}}
        for number in (11, 12, 11)
    ]
    gateway = bots.gateway(ECHO)
    async with gateway.running():
        polling = asyncio.create_task(poll(gateway, gateway.bots[0]))
        await until(lambda: bots.api.texts() == ["11", "12"])
        await until(
            lambda: any(
                method == "getUpdates" and said.get("offset") == 13
                for _, method, said in bots.api.calls
            )
        )
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
    assert bots.api.methods()[0] == "deleteWebhook"
    assert bots.api.calls[0][2] == {"drop_pending_updates": False}
    assert bots.api.texts() == ["11", "12"]


async def test_the_janitor_purges_done_jobs_and_keeps_dead_ones_and_dedupe_keys(bots: Bots) -> None:
    bots.api.faults.append((403, {"description": "blocked"}))
    gateway = bots.gateway(ECHO, QUEUE_DONE_RETENTION="1h")
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            await post(gateway, "echo", update(1, "dies"))
            await post(gateway, "echo", update(2, "is sent"))
            await gateway.forge.drain()
            time.advance("47h")
            await post(gateway, "echo", update(2, "is sent"))
            assert (await gateway.forge.drain()).ran == 0
            janitor = Janitor(gateway.forge, gateway.settings, gateway.storage, gateway.counters)
            await janitor.run_once()
            assert gateway.counters.value("gateway_janitor_total", step="purged") == 1
            time.advance("2h")
            await janitor.run_once()
            assert gateway.counters.value("gateway_janitor_total", step="purged") == 3
            store = await gateway.forge.aready()
            counts = await store.metrics.counts()
            left = {count.status: count.jobs for count in counts if count.jobs}
            assert left == {JobStatus.DEAD: 1}
    assert bots.api.texts() == ["is sent"]


async def test_a_failing_janitor_step_does_not_stop_the_others(
    bots: Bots, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = bots.gateway(ECHO)
    assert gateway.forge is not None
    async with gateway.running(workers=False):
        janitor = Janitor(gateway.forge, gateway.settings, gateway.storage, gateway.counters)
        done: list[str] = []

        async def fails() -> int:
            done.append("purged")
            raise RuntimeError("the disk is gone")

        async def works() -> int:
            done.append("works")
            return 1

        monkeypatch.setattr(janitor, "_purge_jobs", fails)
        monkeypatch.setattr(janitor, "_recover_jobs", works)
        monkeypatch.setattr(janitor, "_purge_storage", works)
        await janitor.run_once()
    assert done == ["purged", "works", "works"]
    assert gateway.counters.value("gateway_janitor_total", step="forgotten") == 1


async def test_readiness_depends_on_database_workers_and_draining(bots: Bots) -> None:
    gateway = bots.gateway(ECHO)
    async with gateway.running(workers=False):
        code, text = await _ready(gateway)
        assert (code, "FAILED workers run" in text) == (503, True)
    gateway = bots.gateway(ECHO)
    async with gateway.running():
        async with asyncio.timeout(60):
            # The database check has a time limit of a second, which a busy machine may exceed.
            while (found := await _ready(gateway))[0] != 200:
                await asyncio.sleep(0.05)
        assert found[1] == "ok not draining\nok database answers\nok workers run\n"
        gateway.webhook.draining = True
        assert (await _ready(gateway))[0] == 503
        page = await gateway.metrics()
        assert "gateway_door_seconds_count" in page
        assert "forge_" in page


@pytest.mark.processes
async def test_a_process_serves_an_update_and_stops_on_sigterm(bots: Bots, tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    env = {**os.environ, **bots.environment(ECHO, LISTEN=f"127.0.0.1:{port}", LOG_LEVEL="debug")}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "telegram_gateway", "serve"], env=env, stderr=log, stdout=log
        )
    try:
        async with httpx2.AsyncClient(trust_env=False, timeout=20) as client, asyncio.timeout(60):
            while True:
                try:
                    if (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200:
                        break
                except httpx2.HTTPError:
                    await asyncio.sleep(0.05)
            file = tmp_path / "update.json"
            file.write_bytes(update(1, "over the wire"))
            code, text = await run(bots, "simulate", "echo", str(file), LISTEN=f"127.0.0.1:{port}")
            assert (code, text.strip()) == (0, "200")
            await until(lambda: bots.api.texts() == ["over the wire"])
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 30) == 0
    finally:
        process.kill()
        process.wait()
    shown = (tmp_path / "log").read_text(encoding="utf-8")
    assert "listening on" in shown
    for secret in (SECRET, TOKEN.format(number=101)):
        assert secret not in shown


async def _ready(gateway: Gateway) -> tuple[int, str]:
    transport = httpx2.ASGITransport(app=gateway.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client:
        answer = await client.get("/readyz")
        return answer.status_code, answer.text
