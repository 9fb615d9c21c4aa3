"""Gives the lives of a gateway a Telegram, a service behind it and users, and lets them be killed.

Telegram is the project's own fake with its real rules of delivery. It runs in this process and so
does the service of the http bots; both outlive every gateway.
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

from forge_jobs import JobRecord, open_storage
from rigs.storms.counters import every_job
from rigs.storms.databases import Database
from rigs.storms.gateway_checks import GatewayEvidence, Place, StoredUpdate
from rigs.storms.history import History, now, read_all
from rigs.storms.rig import ROOT, Say, StormFailed
from telegram_gateway.fake import FakeBot, FakeTelegram, fake_telegram
from tests.gateway.fake_api import serve_app

SECRET = "S" * 40
TOKEN = "{number}:AAabcdefghijklmnopqrstuvwxyz_storm"
GONE = "gone"
REFUSE = "refuse"
# SQLite sees a death at once; on Postgres every round waits for the lease of the dead.
LEASE_S = {True: 10, False: 2}
TERMINAL = ("done", "dead", "cancelled")
# Dying updates have chats of their own: their notices stand in no order with answers.
ALONE = 1_000_000


class Lives:
    """The process that holds the door and forks one gateway after the other."""

    def __init__(self, folder: Path, say: Say) -> None:
        self._folder = folder
        self._say = say
        self._parent: asyncio.subprocess.Process | None = None
        self._count = 0
        self.port = 0
        self.pid: int | None = None

    async def open(self) -> None:
        with (self._folder / "lives.log").open("ab") as log:
            self._parent = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "rigs.storms.gateway_lives",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                cwd=ROOT,
            )  # fmt: skip
        self.port = (await self._heard(120))["port"]

    async def begin(self, environment: dict[str, str], **order: Any) -> None:
        """A new gateway; the one before it has ended."""
        assert self._parent is not None
        assert self._parent.stdin is not None
        self._count += 1
        whole = {
            "life": self._count, "folder": str(self._folder), "environment": environment,
            "step": None, "hits": 1, "armed": False, "sabotage": None, **order,
        }  # fmt: skip
        self._parent.stdin.write(json.dumps(whole).encode() + b"\n")
        await self._parent.stdin.drain()
        self.pid = (await self._heard(60))["pid"]

    async def ended(self, within_s: float) -> int:
        """How the gateway ended; TimeoutError if it has not."""
        status = (await self._heard(within_s))["status"]
        self.pid = None
        return int(status)

    def signal(self, number: signal.Signals) -> None:
        """Send the living gateway a signal."""
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

    def last_words(self) -> str:
        """The end of what the gateways printed."""
        return (self._folder / "lives.log").read_text(errors="replace")[-3_000:]

    async def _heard(self, within_s: float) -> Any:
        assert self._parent is not None
        assert self._parent.stdout is not None
        async with asyncio.timeout(within_s):
            line = await self._parent.stdout.readline()
        if not line:
            raise StormFailed(f"the gateways ended by themselves:\n{self.last_words()}")
        return json.loads(line)


class Users:
    """Write to bots, and remember which answers are due."""

    def __init__(self, fake: FakeTelegram, bots: dict[str, FakeBot]) -> None:
        self._fake = fake
        self._bots = bots
        self.sent = 0
        self.wanted: dict[Place, list[str]] = defaultdict(list)

    def say(self, slug: str, chat: int) -> str:
        """One message whose answer is the same text; its label."""
        self.sent += 1
        text = f"text {self.sent}"
        self._fake.say(self._bots[slug], text, chat=chat)
        self.wanted[slug, chat].append(text)
        return f"{slug}/{chat}/{text}"

    def say_refused(self, slug: str) -> str:
        """One message that the service refuses: a notice is due."""
        self.sent += 1
        chat = ALONE + self.sent
        self._fake.say(self._bots[slug], f"{REFUSE} {self.sent}", chat=chat)
        self.wanted[slug, chat].append(GONE)
        return f"{slug}/{chat}/{GONE}"

    def got(self) -> dict[Place, list[str]]:
        """What the bots' messages say, by chat, in order."""
        return {
            (slug, chat): found.texts()
            for slug, bot in self._bots.items()
            for chat, found in bot.chats.items()
        }

    def missing(self) -> int:
        """How many answers have not come."""
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
        self, folder: Path, database: Database, users: Users, lives: Lives, say: Say
    ) -> None:
        self.folder = folder
        self.users = users
        self.lives = lives
        self.say = say
        self.environment: dict[str, str] = {}
        self.sabotage: str | None = None
        self.database = database
        self._history = History(folder / "rig.jsonl")
        self._began = now()

    async def begin(self, step: str | None = None, *, hits: int = 1, armed: bool = False) -> None:
        """The next gateway."""
        await self.lives.begin(
            self.environment, step=step, hits=hits, armed=armed, sabotage=self.sabotage
        )

    async def killed(self, within_s: float) -> bool:
        """Wait until the gateway reaches its step; if it does not, kill it from here."""
        try:
            status = await self.lives.ended(within_s)
            by_itself = True
        except TimeoutError:
            self._history.write("kill", victim=self.lives.pid)
            self.lives.signal(signal.SIGKILL)
            status = await self.lives.ended(60)
            by_itself = False
        if status != -signal.SIGKILL:
            raise StormFailed(f"a gateway ended with {status}:\n{self.lives.last_words()}")
        return by_itself

    async def up(self) -> None:
        """Wait until the gateway answers; before that it would not know what a signal means."""
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.lives.port)
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: storm\r\nconnection: close\r\n\r\n")
            await reader.read()
            writer.close()

    async def stopped(self) -> None:
        """Let the gateway end in good order."""
        await self.up()
        self.lives.signal(signal.SIGTERM)
        status = await self.lives.ended(60)
        if status != 0:
            raise StormFailed(f"a gateway stopped with {status}:\n{self.lives.last_words()}")

    async def until(self, found: Callable[[], bool], within_s: float, what: str) -> bool:
        """Wait for it; False, and words, if it does not come."""
        end = now() + within_s
        while not found():
            if now() > end:
                self.say(f"  {what}: not within {within_s:.0f} s\n{self.lives.last_words()}")
                return False
            await asyncio.sleep(0.05)
        return True

    async def evidence(self) -> GatewayEvidence:
        """What the judge gets; the gateway has ended."""
        jobs = await self._jobs()
        return GatewayEvidence(
            entries=read_all(self.folder),
            wanted=self.users.wanted,
            got=self.users.got(),
            waiting=self.users.waiting(),
            expired=self.users.expired(),
            updates=[_stored(job) for job in jobs if job.kind.startswith("update.")],
            unended=[f"{job.kind} {job.id} is {job.status}" for job in jobs if not _is_over(job)],
            sent=self.users.sent,
            seconds=now() - self._began,
        )

    async def _jobs(self) -> list[JobRecord]:
        store = open_storage(self.database.url)
        await store.open()
        try:
            return await every_job(store)
        finally:
            await store.close()


def _stored(job: JobRecord) -> StoredUpdate:
    tags = dict(tag.split(":", 1) for tag in job.tags)
    return StoredUpdate(tags["bot"], int(tags["update"]), str(job.status))


def _is_over(job: JobRecord) -> bool:
    """Only updates may die, and only those that their service refuses."""
    return job.status == "done" or (job.status == "dead" and job.kind.startswith("update.http."))


@asynccontextmanager
async def gateway_rig(
    folder: Path,
    database: Database,
    slugs: Sequence[str],
    *,
    say: Say = print,
    attempts: int = 5,
    mode: str = "webhook",
) -> AsyncGenerator[GatewayRig, None]:
    """Telegram, the service and the door are there until the block ends; no gateway lives yet.

    Bots whose name begins with ``shop`` ask the service, all others echo. ``mode`` is how they all
    get their updates.
    """
    lives = Lives(folder, say)
    # A killed gateway leaves half requests behind; the servers here need not tell of each.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    async with _service() as service, fake_telegram(local=True) as fake:
        tokens = {
            slug: f"{100 + n}:AAabcdefghijklmnopqrstuvwxyz_storm" for n, slug in enumerate(slugs)
        }
        bots = {slug: fake.bot(token) for slug, token in tokens.items()}
        try:
            await lives.open()
            rig = GatewayRig(folder, database, Users(fake, bots), lives, say)
            common = f"async: true, requireAuth: false, maxAttempts: {attempts}, mode: {mode}"
            rig.environment = _environment(folder, database.url, fake.base, service, tokens, common)
            for slug, bot in bots.items() if mode == "webhook" else ():
                await _set_webhook(fake, bot, f"http://127.0.0.1:{lives.port}/bot/{slug}")
            yield rig
        finally:
            await lives.close()


async def _set_webhook(fake: FakeTelegram, bot: FakeBot, url: str) -> None:
    from telegram_gateway.fake.call_parameters import CallParameters

    await fake.perform(bot, "setWebhook", CallParameters({"url": url, "secret_token": SECRET}))


def _environment(
    folder: Path, url: str, api: str, service: str, tokens: dict[str, str], common: str
) -> dict[str, str]:
    lines = ["bots:"]
    for slug in tokens:
        if slug.startswith("shop"):
            # A starved service may answer too late. Its retry must not be overtaken here; without
            # "strict" that is allowed, so only the echoes show that a crash alone changes no order.
            target = f"http: {{url: '{service}/update', network: private, timeout: 60s}}"
            more = f"ordering: strict, deadMessage: {GONE}"
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
    """Answers with the text it was sent, or refuses for good."""

    async def answer(request: Request) -> Response:
        update: Any = msgspec.json.decode(await request.body())
        text = update["message"]["text"]
        return (
            Response(status_code=422) if text.startswith(REFUSE) else JSONResponse({"text": text})
        )

    async with serve_app(Starlette(routes=[Route("/update", answer, methods=["POST"])])) as base:
        yield base
