"""Time in users' own tests: standing still, or running with jumps."""

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime

from forge_jobs.app import Forge
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import SECOND, Duration, from_datetime, seconds, to_datetime
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.testing.clock import MovableClock


class Time:
    """The hand on the clock of a Forge."""

    def __init__(self, clock: "MovableClock | RunningClock") -> None:
        self._clock = clock

    def now(self) -> datetime:
        """The present moment as the Forge sees it."""
        return to_datetime(self._clock.now())

    def advance(self, span: Duration) -> datetime:
        """Let time pass: ``advance("1h")``."""
        self._clock.advance(seconds(span, field="advance"))
        return self.now()

    def move_to(self, moment: datetime) -> datetime:
        """Let time pass until then; it never runs backwards."""
        ahead = from_datetime(moment, field="move_to") - self._clock.now()
        if ahead < 0:
            raise BadOption(
                f"move_to={moment.isoformat()} lies before {self.now().isoformat()}: time does not "
                "run backwards"
            )
        self._clock.advance(ahead / SECOND)
        return self.now()


@contextmanager
def frozen(forge: Forge, at: datetime | None = None) -> Generator[Time, None, None]:
    """Within this block the time of ``forge`` stands still, until ``advance`` moves it."""
    start = SYSTEM_CLOCK.now() if at is None else from_datetime(at, field="at")
    with _in_place(forge, MovableClock(start)) as time:
        yield time


@contextmanager
def moving(forge: Forge, at: datetime | None = None) -> Generator[Time, None, None]:
    """Within this block the time of ``forge`` runs as ever, from ``at``, and jumps on request."""
    start = SYSTEM_CLOCK.now() if at is None else from_datetime(at, field="at")
    with _in_place(forge, RunningClock(start)) as time:
        yield time


@contextmanager
def _in_place(forge: Forge, clock: "MovableClock | RunningClock") -> Generator[Time, None, None]:
    before = forge.clock.source
    forge.clock.follow(clock)
    try:
        yield Time(clock)
    finally:
        forge.clock.follow(before)


class RunningClock:
    """Real time with an offset; a jump wakes whoever waits for less."""

    def __init__(self, now: int) -> None:
        self._guard = threading.Lock()
        self._wakers: dict[object, Callable[[], None]] = {}
        self._ahead = now - SYSTEM_CLOCK.now()
        self._passed_s = 0.0

    def now(self) -> int:
        return SYSTEM_CLOCK.now() + self._ahead

    def mono(self) -> float:
        return SYSTEM_CLOCK.mono() + self._passed_s

    def advance(self, span_s: float) -> None:
        """Let that much time pass at once."""
        with self._guard:
            self._ahead += round(span_s * SECOND)
            self._passed_s += span_s
            wakers = list(self._wakers.values())
        for wake in wakers:
            wake()

    async def sleep(self, seconds: float) -> None:
        loop, moved = asyncio.get_running_loop(), asyncio.Event()
        end, key = self.mono() + seconds, object()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(moved.set)

        with self._guard:
            self._wakers[key] = wake
        try:
            while True:
                left = end - self.mono()
                try:
                    async with asyncio.timeout(max(left, 0.0)):
                        await moved.wait()
                except TimeoutError:
                    return
                moved.clear()
        finally:
            with self._guard:
                del self._wakers[key]

    def pause(self, seconds: float) -> None:
        moved, end, key = threading.Event(), self.mono() + seconds, object()
        with self._guard:
            self._wakers[key] = moved.set
        try:
            while moved.wait(max(end - self.mono(), 0.0)):
                moved.clear()
        finally:
            with self._guard:
                del self._wakers[key]
