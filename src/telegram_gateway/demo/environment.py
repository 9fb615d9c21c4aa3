"""Runs the demo in one process: fake Telegram, gateway on SQLite, a service, a chat page.

They communicate over local sockets, as in production. Only the clock is special: it can leap, so
that nobody has to wait an hour for a retry.
"""

from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forge_jobs import SECRET_ENTROPY, EnqueueOutcome, JobStatus, NewJob, NotFound
from telegram_gateway.config import load
from telegram_gateway.fake import FakeBot, FakeTelegram, LeapClock, fake_telegram
from telegram_gateway.fake.server import listen, serve_app
from telegram_gateway.fake.user_actions import open_chat
from telegram_gateway.fake.world import Chat
from telegram_gateway.gateway import Gateway

from .closable_app import ClosableApp
from .page import chat_page
from .saved_state import SavedState, read_state, write_state
from .service import Shop

USER_ID: Final = 7
USER_NAME: Final = "You"
_BOTS: Final = {"echo": 1001, "shop": 1002}
_NAMES: Final = {"echo": "Echo", "shop": "Shop"}
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_SECOND: Final = 1_000_000
# Longer than any leap of the clock, so that a leap does not expire the worker's lease.
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
_TERMINAL: Final = (JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED)


@dataclass(frozen=True, slots=True)
class LastMessage:
    """The job of the last message to a bot, as the page shows it."""

    id: str
    status: str
    attempts: int
    max_attempts: int
    due_in_s: float
    error: str


class DemoEnvironment:
    """The demo, from start to end. ``folder`` holds the database; ``port`` 0 means any free port.

    In the folder of an earlier demo it continues with that one's jobs; the chats start empty.
    """

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self._folder = folder
        self._port = port
        self._tokens = {slug: f"{number}:{_random_text(35)}" for slug, number in _BOTS.items()}
        self._state = SavedState()
        self.clock = LeapClock()
        self.shop = Shop()
        self.address = ""
        self.fake: FakeTelegram
        self.gateway: Gateway

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["DemoEnvironment", None]:
        """Start everything; stop it at the end of the block."""
        async with AsyncExitStack() as stack:
            listener = listen(port=self._port)
            stack.callback(listener.close)
            self._state = read_state(self._folder)
            self.clock.leap(self._state.ahead_s)
            self.fake = await stack.enter_async_context(fake_telegram(clock=self.clock))
            self._create_bots()
            stack.push_async_callback(self.shop.stop)
            await self.shop.start()
            receiver = listen()
            self.gateway = self._gateway(int(receiver.getsockname()[1]))
            await stack.enter_async_context(self.gateway.running())
            base = await stack.enter_async_context(serve_app(self.gateway.app, receiver))
            await self._set_webhooks(base)
            page = ClosableApp(chat_page(self))
            self.address = await stack.enter_async_context(serve_app(page, listener))
            stack.callback(page.end)
            yield self

    # ------------------------------------------------------------------ what the page does

    def bot(self, slug: str) -> FakeBot:
        """Telegram's side of a bot; KeyError for an unknown slug."""
        return self.fake.bot(self._tokens[slug])

    def chat(self, slug: str) -> Chat:
        """The user's chat with a bot."""
        return self.bot(slug).chat(USER_ID)

    def say(self, slug: str, text: str) -> int:
        """Send a message to a bot as the user."""
        return self.fake.say(self.bot(slug), text, chat=USER_ID, name=USER_NAME)

    async def last_message(self, slug: str) -> LastMessage | None:
        """The job of the last message to a bot; None before the first one."""
        number = self._state.jobs.get(slug)
        assert self.gateway.forge is not None
        if number is None:
            return None
        try:
            job = await self.gateway.forge.job(number).arefresh()
        except NotFound:
            return None
        due_in_s = (job.record.run_at - self.clock.now()) / _SECOND
        is_terminal = job.status in _TERMINAL
        return LastMessage(
            id=number,
            status=str(job.status),
            attempts=job.attempts,
            max_attempts=job.max_attempts,
            due_in_s=0.0 if is_terminal else max(due_in_s, 0.0),
            error="" if job.status is JobStatus.DONE else job.error or "",
        )

    async def skip(self, slug: str) -> float:
        """Advance the clock to the next attempt of the last message; by how many seconds."""
        last_message = await self.last_message(slug)
        due_in_s = 0.0 if last_message is None else last_message.due_in_s
        leap_s = min(max(due_in_s, _MIN_LEAP_S), _MAX_LEAP_S)
        self.clock.leap(leap_s)
        self._state.ahead_s += leap_s
        write_state(self._folder, self._state)
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
            env[f"BOT_{slug.upper()}_SECRET"] = _random_text(43)
        settings, bots, _ = load(env)
        gateway = Gateway(settings, bots, clock=self.clock)
        assert gateway.forge is not None

        @gateway.forge.around_enqueue
        def remember(job: NewJob) -> Generator[NewJob, EnqueueOutcome, None]:
            stored = yield job
            _, _, slug = job.kind.rpartition(".")
            if job.kind.startswith("update."):
                self._state.jobs[slug] = stored.id
                write_state(self._folder, self._state)

        return gateway

    def _create_bots(self) -> None:
        """Create both bots and their chats, so that jobs of an earlier demo can be answered."""
        for slug, token in self._tokens.items():
            bot = self.fake.bot(token, name=_NAMES[slug], username=f"{slug}_demo_bot")
            open_chat(bot, USER_ID, USER_NAME)

    async def _set_webhooks(self, base: str) -> None:
        """Set the webhooks, as ``telegram-gateway webhook set`` does."""
        for bot in self.gateway.bots:
            parameters: dict[str, Any] = {
                "url": f"{base}/bot/{bot.slug}",
                "secret_token": bot.secrets[0].decode(),
                "allowed_updates": list(bot.allowed_updates),
                "max_connections": bot.max_connections,
            }
            await self.gateway.api.call(bot, "setWebhook", parameters)


def _random_text(length: int) -> str:
    return "".join(_LETTERS[SECRET_ENTROPY.bits(6)] for _ in range(length))
