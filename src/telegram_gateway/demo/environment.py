"""Everything of the demo in one process: fake Telegram, gateway on SQLite, a service, a chat page.

They talk over sockets of this machine, as they would anywhere. Only time is special: it can leap,
so that nobody has to wait an hour for a retry.
"""

from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forge_jobs import SECRET_ENTROPY, EnqueueOutcome, JobStatus, NewJob, NotFound
from telegram_gateway.config import load
from telegram_gateway.fake import FakeBot, FakeTelegram, LeapClock, fake_telegram
from telegram_gateway.fake.server import listen, served
from telegram_gateway.fake.user_actions import opened
from telegram_gateway.fake.world import Chat
from telegram_gateway.gateway import Gateway

from .closable_app import ClosableApp
from .page import chat_page
from .saved_state import SavedState, read_state, write_state
from .service import Shop

PERSON: Final = 7
NAME: Final = "You"
_BOTS: Final = {"echo": 1001, "shop": 1002}
_NAMES: Final = {"echo": "Echo", "shop": "Shop"}
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_SECOND: Final = 1_000_000
# Longer than any leap: a worker must not take its own leap for a sleep that cost it its jobs.
_LEASE: Final = "24h"
_MIN_LEAP_S: Final = 1.0
_MAX_LEAP_S: Final = 2 * 3_600.0
_YAML: Final = """\
bots:
  echo: {{handler: echo, async: true, requireAuth: false}}
  shop:
    handler: http
    async: true
    requireAuth: false
    http: {{url: "{url}", network: private}}
"""
_OVER: Final = (JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED)


@dataclass(frozen=True, slots=True)
class Told:
    """What the page says about the last message to a bot."""

    id: str
    status: str
    attempts: int
    max_attempts_shown: int
    due_in_s: float
    error: str


class DemoEnvironment:
    """The demo, from start to end. ``folder`` holds the database; ``port`` 0 means any free one.

    In the folder of a demo before it goes on with what that one had; only what was said by then is
    forgotten.
    """

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self._folder = folder
        self._port = port
        self._tokens = {slug: f"{number}:{_random(35)}" for slug, number in _BOTS.items()}
        self._notes = SavedState()
        self.clock = LeapClock()
        self.shop = Shop()
        self.address = ""
        self.fake: FakeTelegram
        self.gateway: Gateway

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["DemoEnvironment", None]:
        """Everything listens while the block runs."""
        async with AsyncExitStack() as stack:
            place = listen(port=self._port)
            stack.callback(place.close)
            self._notes = read_state(self._folder)
            self.clock.leap(self._notes.ahead_s)
            self.fake = await stack.enter_async_context(fake_telegram(clock=self.clock))
            self._introduce()
            stack.push_async_callback(self.shop.stop)
            await self.shop.start()
            receiver = listen()
            self.gateway = self._gateway(int(receiver.getsockname()[1]))
            await stack.enter_async_context(self.gateway.running())
            base = await stack.enter_async_context(served(self.gateway.app, receiver))
            await self._open_bots(base)
            page = ClosableApp(chat_page(self))
            self.address = await stack.enter_async_context(served(page, place))
            stack.callback(page.end)
            yield self

    # ------------------------------------------------------------------ what the page does

    def bot(self, slug: str) -> FakeBot:
        """Telegram's side of a bot; KeyError for a stranger."""
        return self.fake.bot(self._tokens[slug])

    def chat(self, slug: str) -> Chat:
        """The person's conversation with a bot."""
        return self.bot(slug).chat(PERSON)

    def say(self, slug: str, text: str) -> int:
        """The person writes to a bot."""
        return self.fake.say(self.bot(slug), text, chat=PERSON, name=NAME)

    async def told(self, slug: str) -> Told | None:
        """How the last message to a bot fares; None before the first one."""
        number = self._notes.jobs.get(slug)
        assert self.gateway.forge is not None
        if number is None:
            return None
        try:
            job = await self.gateway.forge.job(number).arefresh()
        except NotFound:
            return None
        due_in_s = (job.record.run_at - self.clock.now()) / _SECOND
        over = job.status in _OVER
        return Told(
            id=number,
            status=str(job.status),
            attempts=job.attempts,
            max_attempts_shown=job.max_attempts,
            due_in_s=0.0 if over else max(due_in_s, 0.0),
            error="" if job.status is JobStatus.DONE else job.error or "",
        )

    async def skip(self, slug: str) -> float:
        """Leap to the next try of the last message; the seconds that passed by it."""
        told = await self.told(slug)
        due_in_s = 0.0 if told is None else told.due_in_s
        leap_s = min(max(due_in_s, _MIN_LEAP_S), _MAX_LEAP_S)
        self.clock.leap(leap_s)
        self._notes.ahead_s += leap_s
        write_state(self._folder, self._notes)
        return leap_s

    # ------------------------------------------------------------------ parts

    def _gateway(self, port: int) -> Gateway:
        file = self._folder / "bots.yaml"
        file.write_text(_YAML.format(url=self.shop.url), encoding="utf-8")
        env = {
            "BOTS_CONFIG": str(file),
            "DATABASE_URL": f"sqlite:///{self._folder.resolve()}/gateway.db",
            "TELEGRAM_API_BASE": self.fake.base,
            "LISTEN": f"127.0.0.1:{port}",
            "LEASE": _LEASE,
            "SHUTDOWN_GRACE": "4s",
        }
        for slug, token in self._tokens.items():
            env[f"BOT_{slug.upper()}_TOKEN"] = token
            env[f"BOT_{slug.upper()}_SECRET"] = _random(43)
        settings, bots, _ = load(env)
        gateway = Gateway(settings, bots, clock=self.clock)
        assert gateway.forge is not None

        @gateway.forge.around_enqueue
        def remember(job: NewJob) -> Generator[NewJob, EnqueueOutcome, None]:
            stored = yield job
            _, _, slug = job.kind.rpartition(".")
            if job.kind.startswith("update."):
                self._notes.jobs[slug] = stored.id
                write_state(self._folder, self._notes)

        return gateway

    def _introduce(self) -> None:
        """The person knows both bots: what is left from the demo before may be answered."""
        for slug, token in self._tokens.items():
            bot = self.fake.bot(token, name=_NAMES[slug], username=f"{slug}_demo_bot")
            opened(bot, PERSON, NAME)

    async def _open_bots(self, base: str) -> None:
        """As ``telegram-gateway webhook set`` does it."""
        for bot in self.gateway.bots:
            asked: dict[str, Any] = {
                "url": f"{base}/bot/{bot.slug}",
                "secret_token": bot.secrets[0].decode(),
                "allowed_updates": list(bot.allowed_updates),
                "max_connections": bot.max_connections,
            }
            await self.gateway.api.call(bot, "setWebhook", asked)


def _random(length: int) -> str:
    return "".join(_LETTERS[SECRET_ENTROPY.bits(6)] for _ in range(length))
