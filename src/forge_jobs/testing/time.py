"""Controlled time for users' tests: ``frozen`` stands still, ``moving`` runs and can jump."""

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
    """Controls the clock of a Forge.

    >>> job = send.using(delay="1h").enqueue("a@b.c")
    >>> with testing.frozen(forge) as time:
    ...     later = time.advance("2h")
    ...     report = forge.drain().run()
    >>> job.refresh().status.value
    'done'
    """

    def __init__(self, clock: "MovableClock | RunningClock") -> None:
        self._clock = clock

    def now(self) -> datetime:
        """The time as the Forge reads it."""
        return to_datetime(self._clock.now())

    def advance(self, span: Duration) -> datetime:
        """Let time pass: ``advance("1h")``; returns the new time."""
        self._clock.advance(seconds(span, field="advance"))
        return self.now()

    def move_to(self, moment: datetime) -> datetime:
        """Let time pass until ``moment``; BadOption for a moment in the past."""
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
    """Within this block the clock of ``forge`` stands still until ``advance`` moves it.

    >>> with testing.frozen(forge) as time:
    ...     before = time.now()
    ...     (time.advance("1h") - before).total_seconds()
    3600.0
    """
    start = SYSTEM_CLOCK.now() if at is None else from_datetime(at, field="at")
    with _replaced_clock(forge, MovableClock(start)) as time:
        yield time


@contextmanager
def moving(forge: Forge, at: datetime | None = None) -> Generator[Time, None, None]:
    """Within this block the clock of ``forge`` starts at ``at``, runs, and jumps by ``advance``.

    >>> with testing.moving(forge) as time:
    ...     before = time.now()
    ...     time.advance("1h") > before
    True
    """
    start = SYSTEM_CLOCK.now() if at is None else from_datetime(at, field="at")
    with _replaced_clock(forge, RunningClock(start)) as time:
        yield time


@contextmanager
def _replaced_clock(
    forge: Forge, clock: "MovableClock | RunningClock"
) -> Generator[Time, None, None]:
    before = forge.clock.source
    forge.clock.follow(clock)
    try:
        yield Time(clock)
    finally:
        forge.clock.follow(before)


class RunningClock:
    """Real time with an offset; ``advance`` ends the sleeps that are over by then."""

    def __init__(self, now: int) -> None:
        self._lock = threading.Lock()
        self._wakers: dict[object, Callable[[], None]] = {}
        self._offset_us = now - SYSTEM_CLOCK.now()
        self._advanced_s = 0.0

    def now(self) -> int:
        return SYSTEM_CLOCK.now() + self._offset_us

    def mono(self) -> float:
        return SYSTEM_CLOCK.mono() + self._advanced_s

    def advance(self, span_s: float) -> None:
        """Let that much time pass at once."""
        with self._lock:
            self._offset_us += round(span_s * SECOND)
            self._advanced_s += span_s
            wakers = list(self._wakers.values())
        for wake in wakers:
            wake()

    async def sleep(self, seconds: float) -> None:
        loop, moved = asyncio.get_running_loop(), asyncio.Event()
        end, key = self.mono() + seconds, object()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(moved.set)

        with self._lock:
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
            with self._lock:
                del self._wakers[key]

    def pause(self, seconds: float) -> None:
        moved, end, key = threading.Event(), self.mono() + seconds, object()
        with self._lock:
            self._wakers[key] = moved.set
        try:
            while moved.wait(max(end - self.mono(), 0.0)):
                moved.clear()
        finally:
            with self._lock:
                del self._wakers[key]
