"""The rig of the gateway storm: gateways that are killed, a fake Telegram, a service and users.

The fake Telegram has the real delivery rules. It runs in this process, and so does the service of
the http bots; both keep running while gateways are killed.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from forge_jobs import Forge, JobRecord
from rigs.storms.counters import every_job
from rigs.storms.databases import Database
from rigs.storms.front_door import ROOT
from rigs.storms.gateway_checks import ChatKey, GatewayEvidence, StoredUpdate
from rigs.storms.history import History, now, read_all
from rigs.storms.rig import Log, StormFailed
from telegram_gateway.fake import FakeBot, FakeTelegram, fake_telegram
from tests.gateway.fake_api import serve_app

SECRET = "S" * 40
TOKEN = "{number}:AAabcdefghijklmnopqrstuvwxyz_storm"
DEAD_TEXT = "gone"
REFUSED_PREFIX = "refuse"
# SQLite sees a death at once; on Postgres every round waits for the lease of the dead.
LEASE_S = {True: 10, False: 2}
TERMINAL = ("done", "dead", "cancelled")
# Refused updates have chats of their own: the order of notices and replies is not defined.
FIRST_REFUSED_CHAT = 1_000_000


class GatewayProcesses:
    """The process that holds the listening socket and forks one gateway after the other."""

    def __init__(self, folder: Path, say: Log) -> None:
        self._folder = folder
        self._say = say
        self._parent: asyncio.subprocess.Process | None = None
        self._count = 0
        self.port = 0
        self.pid: int | None = None

    async def open(self) -> None:
        with (self._folder / "gateways.log").open("ab") as log:
            self._parent = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "rigs.storms.gateway_process",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                cwd=ROOT,
            )  # fmt: skip
        self.port = (await self._read_reply(120))["port"]

    async def start(self, environment: dict[str, str], **order: Any) -> None:
        """Start a new gateway; the previous one has ended."""
        assert self._parent is not None
        assert self._parent.stdin is not None
        self._count += 1
        original = {
            "number": self._count, "folder": str(self._folder), "environment": environment,
            "step": None, "hits": 1, "armed": False, "sabotage": None, **order,
        }  # fmt: skip
        self._parent.stdin.write(json.dumps(original).encode() + b"\n")
        await self._parent.stdin.drain()
        self.pid = (await self._read_reply(60))["pid"]

    async def wait_exit(self, within_s: float) -> int:
        """Wait for the exit status of the gateway; TimeoutError if it does not exit."""
        status = (await self._read_reply(within_s))["status"]
        self.pid = None
        return int(status)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the running gateway."""
        if self.pid is not None:
            os.kill(self.pid, number)

    async def close(self) -> None:
        if self._parent is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        try:
            async with asyncio.timeout(20):
                await self._parent.wait()
        except TimeoutError:
            self._parent.kill()
            await self._parent.wait()

    def log_tail(self) -> str:
        """The end of the gateways' log."""
        return (self._folder / "gateways.log").read_text(errors="replace")[-3_000:]

    async def _read_reply(self, within_s: float) -> Any:
        assert self._parent is not None
        assert self._parent.stdout is not None
        async with asyncio.timeout(within_s):
            line = await self._parent.stdout.readline()
        if not line:
            raise StormFailed(f"the parent of the gateways exited:\n{self.log_tail()}")
        return json.loads(line)


class Users:
    """Sends messages to bots as users, and tracks which replies are expected."""

    def __init__(self, fake: FakeTelegram, bots: dict[str, FakeBot]) -> None:
        self._fake = fake
        self._bots = bots
        self.sent = 0
        self.wanted: dict[ChatKey, list[str]] = defaultdict(list)

    def say(self, slug: str, chat: int) -> str:
        """Send one message whose reply is the same text; returns its label."""
        self.sent += 1
        text = f"text {self.sent}"
        self._fake.say(self._bots[slug], text, chat=chat)
        self.wanted[slug, chat].append(text)
        return f"{slug}/{chat}/{text}"

    def say_refused(self, slug: str) -> str:
        """Send one message that the service refuses, so that a notice is expected."""
        self.sent += 1
        chat = FIRST_REFUSED_CHAT + self.sent
        self._fake.say(self._bots[slug], f"{REFUSED_PREFIX} {self.sent}", chat=chat)
        self.wanted[slug, chat].append(DEAD_TEXT)
        return f"{slug}/{chat}/{DEAD_TEXT}"

    def got(self) -> dict[ChatKey, list[str]]:
        """The texts of the bots' messages, by chat, in order."""
        return {
            (slug, chat): found.texts()
            for slug, bot in self._bots.items()
            for chat, found in bot.chats.items()
        }

    def missing(self) -> int:
        """How many replies are missing."""
        got = self.got()
        return sum(
            len(set(texts) - set(got.get(place, ()))) for place, texts in self.wanted.items()
        )

    def waiting(self) -> list[str]:
        return [f"{slug}: {one}" for slug, bot in self._bots.items() for one in bot.waiting]

    def expired(self) -> list[str]:
        return [f"{slug}: {one}" for slug, bot in self._bots.items() for one in bot.expired]


class GatewayRig:
    """One storm in one folder; made by ``gateway_rig``."""

    def __init__(
        self, folder: Path, database: Database, users: Users, processes: GatewayProcesses, say: Log
    ) -> None:
        self.folder = folder
        self.users = users
        self.processes = processes
        self.say = say
        self.environment: dict[str, str] = {}
        self.sabotage: str | None = None
        self.database = database
        self._history = History(folder / "rig.jsonl")
        self._began = now()

    async def start(self, step: str | None = None, *, hits: int = 1, armed: bool = False) -> None:
        """Start the next gateway."""
        await self.processes.start(
            self.environment, step=step, hits=hits, armed=armed, sabotage=self.sabotage
        )

    async def wait_killed(self, within_s: float) -> bool:
        """Wait until the gateway reaches its step; if it does not, kill it from here."""
        try:
            status = await self.processes.wait_exit(within_s)
            by_itself = True
        except TimeoutError:
            self._history.write("kill", victim=self.processes.pid)
            self.processes.signal(signal.SIGKILL)
            status = await self.processes.wait_exit(60)
            by_itself = False
        if status != -signal.SIGKILL:
            raise StormFailed(f"a gateway ended with {status}:\n{self.processes.log_tail()}")
        return by_itself

    async def wait_ready(self) -> None:
        """Wait until the gateway responds; before that its signal handlers are not installed."""
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.processes.port)
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: storm\r\nconnection: close\r\n\r\n")
            await reader.read()
            writer.close()

    async def stop(self) -> None:
        """Stop the gateway gracefully."""
        await self.wait_ready()
        self.processes.signal(signal.SIGTERM)
        status = await self.processes.wait_exit(60)
        if status != 0:
            raise StormFailed(f"a gateway stopped with {status}:\n{self.processes.log_tail()}")

    async def wait_until(self, found: Callable[[], bool], within_s: float, what: str) -> bool:
        """Wait for a condition; logs and returns False on a timeout."""
        end = now() + within_s
        while not found():
            if now() > end:
                self.say(f"  {what}: not within {within_s:.0f} s\n{self.processes.log_tail()}")
                return False
            await asyncio.sleep(0.05)
        return True

    async def evidence(self) -> GatewayEvidence:
        """The input of the checks; the gateway has ended."""
        jobs = await self._jobs()
        return GatewayEvidence(
            entries=read_all(self.folder),
            wanted=self.users.wanted,
            got=self.users.got(),
            waiting=self.users.waiting(),
            expired=self.users.expired(),
            updates=[_stored(job) for job in jobs if job.kind.startswith("update.")],
            unfinished=[
                f"{job.kind} {job.id} is {job.status}" for job in jobs if not _is_over(job)
            ],
            sent=self.users.sent,
            seconds=now() - self._began,
        )

    async def _jobs(self) -> list[JobRecord]:
        async with Forge(self.database.url) as forge:
            return await every_job(await forge.aready())


def _stored(job: JobRecord) -> StoredUpdate:
    tags = dict(tag.split(":", 1) for tag in job.tags)
    return StoredUpdate(tags["bot"], int(tags["update"]), str(job.status))


def _is_over(job: JobRecord) -> bool:
    """Whether the job is done, or dead as an update that the service refused."""
    return job.status == "done" or (job.status == "dead" and job.kind.startswith("update.http."))


@asynccontextmanager
async def gateway_rig(
    folder: Path,
    database: Database,
    slugs: Sequence[str],
    *,
    say: Log = print,
    attempts: int = 5,
    mode: str = "webhook",
) -> AsyncGenerator[GatewayRig, None]:
    """Telegram, the service and the listening socket until the block ends; no gateway runs yet.

    Bots whose name begins with ``shop`` call the service, all others echo. ``mode`` is how all of
    them receive updates.
    """
    processes = GatewayProcesses(folder, say)
    # A killed gateway leaves incomplete requests; the servers here should not log each one.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    async with _service() as service, fake_telegram(local=True) as fake:
        tokens = {
            slug: f"{100 + n}:AAabcdefghijklmnopqrstuvwxyz_storm" for n, slug in enumerate(slugs)
        }
        bots = {slug: fake.bot(token) for slug, token in tokens.items()}
        try:
            await processes.open()
            rig = GatewayRig(folder, database, Users(fake, bots), processes, say)
            common = f"async: true, requireAuth: false, maxAttempts: {attempts}, mode: {mode}"
            rig.environment = _environment(folder, database.url, fake.base, service, tokens, common)
            for slug, bot in bots.items() if mode == "webhook" else ():
                await _set_webhook(fake, bot, f"http://127.0.0.1:{processes.port}/bot/{slug}")
            yield rig
        finally:
            await processes.close()


async def _set_webhook(fake: FakeTelegram, bot: FakeBot, url: str) -> None:
    from telegram_gateway.fake.call_parameters import CallParameters

    await fake.perform(bot, "setWebhook", CallParameters({"url": url, "secret_token": SECRET}))


def _environment(
    folder: Path, url: str, api: str, service: str, tokens: dict[str, str], common: str
) -> dict[str, str]:
    lines = ["bots:"]
    for slug in tokens:
        if slug.startswith("shop"):
            # On a busy machine the service may time out, and the retry must keep its order here.
            # Without "strict" it need not, so only the echo bots test the order after a crash.
            target = f"http: {{url: '{service}/update', network: private, timeout: 60s}}"
            more = f"ordering: strict, deadMessage: {DEAD_TEXT}"
            lines.append(f"  {slug}: {{handler: http, {common}, {target}, {more}}}")
        else:
            lines.append(f"  {slug}: {{handler: echo, {common}}}")
    config = folder / "bots.yaml"
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = {
        "BOTS_CONFIG": str(config),
        "DATABASE_URL": url,
        "TELEGRAM_API_BASE": api,
        "LEASE": f"{LEASE_S[url.startswith('sqlite')]}s",
        "LOG_LEVEL": "warning",
    }
    for slug, token in tokens.items():
        name = slug.upper().replace("-", "_")
        found |= {f"BOT_{name}_TOKEN": token, f"BOT_{name}_SECRET": SECRET}
    return found


@asynccontextmanager
async def _service() -> AsyncGenerator[str, None]:
    """A service that answers with the text of the update, or refuses it permanently."""

    async def answer(request: Request) -> Response:
        update: Any = msgspec.json.decode(await request.body())
        text = update["message"]["text"]
        return (
            Response(status_code=422)
            if text.startswith(REFUSED_PREFIX)
            else JSONResponse({"text": text})
        )

    async with serve_app(Starlette(routes=[Route("/update", answer, methods=["POST"])])) as base:
        yield base
