"""Log lines name bot, update, chat, job and reason; bodies that are not updates are listed (G3)."""

import asyncio
import io
import json
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from telegram_gateway.cli import app
from telegram_gateway.gateway import Gateway
from telegram_gateway.masking import configure_logging
from tests.gateway.backend import Backend, backend
from tests.gateway.conftest import SECRET, TOKEN, Bots, post, update
from tests.gateway.fake_api import fake_api, until

ECHO = "bots: {echo: {handler: echo, async: true, requireAuth: false}}"


@pytest.fixture
async def bots(tmp_path: Path, store_url: str) -> AsyncIterator[Bots]:
    async with fake_api() as api:
        yield Bots(api, tmp_path, store_url)


@pytest.fixture
async def back() -> AsyncIterator[Backend]:
    async with backend() as service:
        yield service


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    root, before = logging.getLogger(), logging.getLogger().level
    handlers = list(root.handlers)
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(before)


def http_bot(back: Backend, more: str = "") -> str:
    target = f"{{url: '{back.url}', network: private}}"
    return (
        f"bots: {{back: {{handler: http, async: true, requireAuth: false, http: {target}{more}}}}}"
    )


def log_to(output: io.StringIO, gateway: Gateway, *, as_json: bool = False) -> None:
    configure_logging(
        output, gateway.mask, level="info", as_json=as_json, reported=gateway.reported
    )


def lines_about(output: io.StringIO, text: str) -> list[str]:
    return [line for line in output.getvalue().splitlines() if text in line]


async def run_cli(bots: Bots, yaml: str, *words: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "telegram_gateway", *words],
        env={**os.environ, **bots.environment(yaml)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


async def test_g3_each_update_has_one_line_with_bot_chat_update_and_job(
    bots: Bots, output: io.StringIO
) -> None:
    gateway = bots.gateway(ECHO)
    log_to(output, gateway)
    async with gateway.running(workers=False):
        for _ in range(2):
            assert (await post(gateway, "echo", update(41, chat=77))).is_success
        assert gateway.forge is not None
        await gateway.forge.drain()
    accepted, duplicate = lines_about(output, "update 41 ")
    assert "INFO" in accepted
    assert "gateway: bot echo: update 41 (message, chat 77): accepted, job " in accepted
    job = accepted.rpartition("job ")[2]
    assert len(job) == 26
    assert duplicate.endswith(f"bot echo: update 41 (message, chat 77): duplicate, job {job}")


async def test_g3_a_failed_and_a_dead_update_are_logged_with_their_reason(
    bots: Bots, back: Backend, output: io.StringIO
) -> None:
    back.say(500)
    gateway = bots.gateway(http_bot(back, ", maxAttempts: 2, backoff: [100ms]"))
    log_to(output, gateway)
    async with gateway.running():
        assert (await post(gateway, "back", update(42, chat=78))).is_success
        await until(lambda: bool(bots.api.texts()))
    accepted, first, second, dead = lines_about(output, "update 42 ")
    job = accepted.rpartition("job ")[2]
    name = "bot back: update 42 (message, chat 78)"
    reason = f"the service answered 500 (job {job})"
    assert first.endswith(f"{name}: attempt 1 of 2 failed, to be retried: {reason}")
    assert second.endswith(f"{name}: attempt 2 of 2 failed, no more attempts: {reason}")
    assert dead.endswith(f"{name} is dead after 2 attempts, its chat is told: {reason}")
    assert " ERROR " in dead
    # The engine's lines about the same failures would only repeat these.
    assert lines_about(output, "job is dead") == []
    assert lines_about(output, "will be retried") == []


async def test_g3_a_message_that_is_not_sent_is_logged_with_its_reason(
    bots: Bots, output: io.StringIO
) -> None:
    bots.api.faults.append((403, {"description": "Forbidden: blocked by the user"}))
    gateway = bots.gateway(ECHO)
    log_to(output, gateway)
    async with gateway.running(workers=False):
        await post(gateway, "echo", update(43, chat=79))
        assert gateway.forge is not None
        await gateway.forge.drain()
    [line] = lines_about(output, "sendMessage")
    start = "bot echo: sendMessage to chat 79: attempt 1 of 20 failed, no more attempts: "
    assert start in line
    assert "403: Forbidden: blocked by the user (job " in line


async def test_g3_lines_of_the_engine_keep_their_facts(bots: Bots, output: io.StringIO) -> None:
    gateway = bots.gateway(ECHO)
    log_to(output, gateway)
    facts = {"kind": "update.echo.echo", "job_id": "01ABC", "error": f"bad {SECRET}\nnext"}
    logging.getLogger("forge_jobs.engine").error("job is dead", extra=facts)
    [line] = output.getvalue().splitlines()
    assert line.endswith("job is dead kind=update.echo.echo job_id=01ABC error=bad ***\\nnext")
    log_to(output, gateway, as_json=True)
    logging.getLogger("forge_jobs.engine").error("job is dead", extra=facts)
    fields = json.loads(output.getvalue().splitlines()[-1])
    assert fields["kind"] == "update.echo.echo"
    assert fields["error"] == "bad ***\nnext"
    assert fields["message"] == "job is dead"


def test_g3_what_another_formatter_leaves_in_a_record_is_no_fact(
    bots: Bots, output: io.StringIO
) -> None:
    other = logging.StreamHandler(io.StringIO())
    other.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.getLogger().addHandler(other)
    log_to(output, bots.gateway(ECHO))
    logging.getLogger("forge_jobs.engine").error("job is dead", extra={"job_id": "01ABC"})
    [line] = output.getvalue().splitlines()
    assert line.endswith("forge_jobs.engine: job is dead job_id=01ABC")


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
async def test_g3_no_line_contains_a_planted_secret(
    bots: Bots, back: Backend, output: io.StringIO, as_json: bool
) -> None:
    auth, admin = 'open "sesame" \\ 0123456789', "admin\\token-0123456789"
    planted = [TOKEN.format(number=102), SECRET, auth, admin]
    back.say(500)
    bots.api.faults.extend([(500, {"description": f"planted {' '.join(planted)}"})] * 3)
    text = http_bot(back, ", maxAttempts: 1, deadMessage: dead")
    gateway = bots.gateway(text, AUTH_SECRET=auth, ADMIN_TOKEN=admin)
    log_to(output, gateway, as_json=as_json)
    async with gateway.running():
        await post(gateway, "back", update(44))
        await post(gateway, "back", f"not an update {planted}".encode())
        for name in ("telegram_gateway.updates", "forge_jobs.engine", "httpx2"):
            try:
                raise ValueError(*planted)
            except ValueError:
                facts = {"error": planted[0], "more": planted, "secret": auth}
                logging.getLogger(name).exception("with %s", planted[2], extra=facts)
        await until(lambda: "attempt 1 of 20 failed" in output.getvalue())
    shown = output.getvalue()
    assert "quarantined" in shown
    for secret in planted:
        assert secret not in shown
        assert json.dumps(secret)[1:-1] not in shown
        assert repr(secret)[1:-1] not in shown


async def test_g3_a_body_that_is_not_an_update_is_logged_listed_shown_and_retried(
    bots: Bots, output: io.StringIO
) -> None:
    gateway = bots.gateway(ECHO)
    log_to(output, gateway)
    token = TOKEN.format(number=101)
    bodies = [
        f'{{"message": "no id \x1b[31m {token}"}}'.encode(),
        b'{"text": "/auth code"',
        b"x" * 70_000,
        update(45),
    ]
    async with gateway.running(workers=False):
        for body in bodies[:3]:
            assert (await post(gateway, "echo", body)).is_success
        # As an older release, which could not read it, stored it.
        await gateway.storage.quarantine(
            gateway.bots[0].id,
            gateway.clock.now(),
            bodies[3],
            reason="too new",
            size=len(bodies[3]),
        )
    first = lines_about(output, "a body that is not an update: quarantined")[0]
    assert " WARNING " in first
    assert "bot echo: " in first
    assert "not JSON" in first
    assert first.endswith("see `telegram-gateway quarantine show 1`")

    listed = await run_cli(bots, ECHO, "quarantine", "list", "--json")
    rows = json.loads(listed.stdout)
    assert [row["number"] for row in rows] == [4, 3, 2, 1]
    assert {row["bot"] for row in rows} == {"echo"}
    assert [row["bytes"] for row in rows][1:3] == [70_000, len(bodies[1])]
    table = (await run_cli(bots, ECHO, "quarantine", "list", "--bot", "echo")).stdout
    assert table.startswith("NUMBER  WHEN ")
    assert "not stored, it may contain a code" in table

    shown = await run_cli(bots, ECHO, "quarantine", "show", "1")
    assert "no id \\x1b[31m ***" in shown.stdout
    assert token not in shown.stdout
    assert "code" not in json.loads(
        (await run_cli(bots, ECHO, "quarantine", "show", "2", "--json")).stdout
    )["body"]  # fmt: skip

    for number, reason in ((1, "still not an update"), (3, "only a complete body"), (9, "list")):
        refused = await run_cli(bots, ECHO, "quarantine", "retry", str(number))
        assert refused.returncode == 1
        assert reason in refused.stderr
    retried = await run_cli(bots, ECHO, "quarantine", "retry", "4", "--json")
    assert json.loads(retried.stdout) == {"number": 4, "outcome": "accepted"}
    gateway = bots.gateway(ECHO)
    async with gateway.running(workers=False):
        assert gateway.forge is not None
        await gateway.forge.drain()
        left = await gateway.storage.quarantined(bot_id=None, limit=10)
    assert bots.api.texts() == ["hi"]
    assert [found.id for found in left] == [3, 2, 1]


async def test_g3_rows_of_release_0_1_are_listed_after_the_upgrade(bots: Bots) -> None:
    gateway = bots.gateway(ECHO)
    now = gateway.clock.now()
    async with gateway.running(workers=False):
        pass
    old = f"INSERT INTO gateway_quarantine VALUES ({now}, '101', {{}})"
    if bots.url.startswith("sqlite"):
        with closing(sqlite3.connect(bots.url.removeprefix("sqlite:///"))) as database:
            database.execute(old.format("CAST('old' AS BLOB)"))
            database.commit()
    else:
        storage: Any = bots.gateway(ECHO).storage
        async with storage._durable.transaction() as tx:
            await tx.execute(old.format("'old'"))
        await storage.close()
    gateway = bots.gateway(ECHO)
    async with gateway.running(workers=False):
        [found] = await gateway.storage.quarantined(bot_id="101", limit=10)
    assert (found.at, found.body, found.size) == (now, b"old", 3)


def test_g3_the_commands_have_help_with_an_example() -> None:
    for command in ("list", "show", "retry"):
        shown = CliRunner().invoke(app, ["quarantine", command, "--help"]).output
        assert f"telegram-gateway quarantine {command}" in shown
        assert "--json" in shown
    alone = ("serve", "poll", "check", "send", "simulate", "fake-telegram", "demo")
    grouped = ("webhook set", "webhook delete", "webhook info", "secret new")
    for command in (*alone, *grouped):
        shown = CliRunner().invoke(app, [*command.split(), "--help"]).output
        assert f"telegram-gateway {command}" in shown.partition("Example:")[2], command
