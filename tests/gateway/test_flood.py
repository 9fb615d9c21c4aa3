"""500 messages to 50 chats by two processes, and a Telegram that counts.

Time is virtual: the test tells it to Telegram and to both processes, step by step.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forge_jobs.testing import frozen
from forge_jobs.testing.clock import MovableClock
from telegram_gateway.config import load
from telegram_gateway.fake import FakeBot, FakeTelegram, FloodControl, FloodRate, fake_telegram
from telegram_gateway.gateway import Gateway
from telegram_gateway.update_receiver import UpdateVerdict
from tests.gateway.conftest import SECRET, TOKEN, update

pytestmark = pytest.mark.processes
ECHO = "bots: {echo: {handler: echo, async: true, requireAuth: false}}"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
STEP = SECOND
CHATS = range(1, 51)
PER_CHAT = 10
WHOLE = len(CHATS) * PER_CHAT
PATIENCE_S = 60


class Process:
    """One gateway."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    async def heard(self) -> str:
        assert self._child.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = await self._child.stdout.readline()
        assert line, "a gateway ended by itself"
        return line.decode().strip()

    async def does(self, moment: int) -> int:
        """What is due then; how many jobs were done."""
        assert self._child.stdin is not None
        self._child.stdin.write(b"%d\n" % moment)
        await self._child.stdin.drain()
        return int(await self.heard())


@asynccontextmanager
async def process(environment: dict[str, str]) -> AsyncGenerator[Process, None]:
    child = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "tests.gateway.in_steps", NOW.isoformat()],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    try:
        made = Process(child)
        assert await made.heard() == "ready"
        yield made
        assert child.stdin is not None
        child.stdin.close()
        async with asyncio.timeout(PATIENCE_S):
            assert await child.wait() == 0
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


class Counting(FloodControl):
    """Writes down when it refused what, and when anything came at all."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(**limits)
        self.refusals: list[tuple[float, int]] = []
        self.arrivals: list[float] = []

    def wait_s(self, bot_id: int, chat_id: str, clock: Any) -> int:
        found = super().wait_s(bot_id, chat_id, clock)
        self.arrivals.append(clock.mono())
        if found:
            self.refusals.append((clock.mono(), found))
        return found


async def taken_in(fake: FakeTelegram, bot: FakeBot, environment: dict[str, str]) -> None:
    """All messages are there before the first one is answered."""
    settings, bots, _ = load(environment)
    gateway = Gateway(settings, bots)
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW):
        async with gateway.running(workers=False):
            for number in range(PER_CHAT):
                bodies: list[bytes] = []
                for chat in CHATS:
                    fake.say(bot, str(number), chat=chat)
                    bodies.append(update(number * 100 + chat, str(number), chat=chat, user=chat))
                take = partial(gateway.receiver.take, gateway.runtimes["echo"])
                assert {*await asyncio.gather(*map(take, bodies))} == {UpdateVerdict.ACCEPTED}


async def until_all_came(bot: FakeBot, clock: MovableClock, processes: list[Process]) -> None:
    passed = 0
    while sum(len(bot.chat(chat).texts()) for chat in CHATS) < WHOLE:
        assert passed < 180 * SECOND
        await asyncio.gather(*(one.does(passed) for one in processes))
        clock.advance(STEP / SECOND)
        passed += STEP
    # Nothing is left that could come twice.
    await asyncio.gather(*(one.does(passed + 600 * SECOND) for one in processes))


@pytest.mark.parametrize("burst", [30, 20])
async def test_500_messages_to_50_chats_by_two_processes(tmp_path: Path, burst: int) -> None:
    """Telegram counts as it says it does, or is stricter than that."""
    clock, flooding = MovableClock(), Counting(bot=FloodRate(30.0, burst))
    file = tmp_path / "bots.yaml"
    file.write_text(ECHO, encoding="utf-8")
    async with fake_telegram(clock=clock, flooding=flooding) as fake:
        bot = fake.bot(TOKEN.format(number=101))
        environment = {
            "BOTS_CONFIG": str(file),
            "DATABASE_URL": f"sqlite:///{tmp_path}/gateway.db",
            "TELEGRAM_API_BASE": fake.base,
            "BOT_ECHO_TOKEN": bot.token,
            "BOT_ECHO_SECRET": SECRET,
        }
        await taken_in(fake, bot, environment)
        async with AsyncExitStack() as stack:
            processes = [await stack.enter_async_context(process(environment)) for _ in range(2)]
            await until_all_came(bot, clock, processes)
    for chat in CHATS:
        assert bot.chat(chat).texts() == [str(number) for number in range(PER_CHAT)]
    # At one moment 30 messages may leave, of which Telegram takes ``burst``; before the next of
    # these moments it has as much patience again.
    stops = Counter(moment for moment, _ in flooding.refusals)
    assert max(stops.values(), default=0) <= 30 - burst
    assert len(stops) <= WHOLE / burst + 1
    assert bool(stops) == (burst < 30)
    # Nobody sends anything before the time that Telegram named.
    for moment, wait_s in flooding.refusals:
        assert not [at for at in flooding.arrivals if moment < at < moment + wait_s]
