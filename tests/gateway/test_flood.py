"""500 messages to 50 chats by two processes, against a fake Telegram with rate limits.

Time is virtual: the test advances the clocks of Telegram and of both processes in steps.
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
from telegram_gateway.update_receiver import ReceiveStatus
from tests.gateway.conftest import SECRET, TOKEN, update

pytestmark = pytest.mark.processes
ECHO = "bots: {echo: {handler: echo, async: true, requireAuth: false}}"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
STEP = SECOND
CHATS = range(1, 51)
PER_CHAT = 10
TOTAL = len(CHATS) * PER_CHAT
TIMEOUT_S = 60


class SteppedProcess:
    """One gateway process whose clock is controlled by the test."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    async def read_line(self) -> str:
        assert self._child.stdout is not None
        async with asyncio.timeout(TIMEOUT_S):
            line = await self._child.stdout.readline()
        assert line, "a gateway exited unexpectedly"
        return line.decode().strip()

    async def run_until(self, moment: int) -> int:
        """Run what is due at that moment; how many jobs were done."""
        assert self._child.stdin is not None
        self._child.stdin.write(b"%d\n" % moment)
        await self._child.stdin.drain()
        return int(await self.read_line())


@asynccontextmanager
async def stepped_process(environment: dict[str, str]) -> AsyncGenerator[SteppedProcess, None]:
    child = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "tests.gateway.stepped_gateway", NOW.isoformat()],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    try:
        made = SteppedProcess(child)
        assert await made.read_line() == "ready"
        yield made
        assert child.stdin is not None
        child.stdin.close()
        async with asyncio.timeout(TIMEOUT_S):
            assert await child.wait() == 0
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


class RecordingFloodControl(FloodControl):
    """Records the times of all calls and of all refusals."""

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


async def store_updates(fake: FakeTelegram, bot: FakeBot, environment: dict[str, str]) -> None:
    """Store all updates before the first one is run."""
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
                take = partial(gateway.receiver.receive, gateway.runtimes["echo"])
                assert {*await asyncio.gather(*map(take, bodies))} == {ReceiveStatus.ACCEPTED}


async def step_until_all_sent(
    bot: FakeBot, clock: MovableClock, processes: list[SteppedProcess]
) -> None:
    passed = 0
    while sum(len(bot.chat(chat).texts()) for chat in CHATS) < TOTAL:
        assert passed < 180 * SECOND
        await asyncio.gather(*(one.run_until(passed) for one in processes))
        clock.advance(STEP / SECOND)
        passed += STEP
    # No job is left that could send a message twice.
    await asyncio.gather(*(one.run_until(passed + 600 * SECOND) for one in processes))


@pytest.mark.parametrize("burst", [30, 20])
async def test_500_messages_to_50_chats_by_two_processes(tmp_path: Path, burst: int) -> None:
    """Telegram with its documented limits, or with stricter ones."""
    clock, flooding = MovableClock(), RecordingFloodControl(bot=FloodRate(30.0, burst))
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
        await store_updates(fake, bot, environment)
        async with AsyncExitStack() as stack:
            processes = [
                await stack.enter_async_context(stepped_process(environment)) for _ in range(2)
            ]
            await step_until_all_sent(bot, clock, processes)
    for chat in CHATS:
        assert bot.chat(chat).texts() == [str(number) for number in range(PER_CHAT)]
    # At one moment 30 messages may be sent, of which Telegram accepts ``burst``; by the next such
    # moment the full burst is available again.
    stops = Counter(moment for moment, _ in flooding.refusals)
    assert max(stops.values(), default=0) <= 30 - burst
    assert len(stops) <= TOTAL / burst + 1
    assert bool(stops) == (burst < 30)
    # No message is sent before retry_after has passed.
    for moment, wait_s in flooding.refusals:
        assert not [at for at in flooding.arrivals if moment < at < moment + wait_s]
