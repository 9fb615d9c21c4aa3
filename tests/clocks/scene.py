"""Runs workers and producers with wrong clocks and reads the events they recorded."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.clocks.wrong_clock import WrongClock

HERE = Path(__file__).parent
TIMEOUT_S = 60.0
SLOTS = 2


def produced_jobs(stage: str) -> list[str]:
    """The jobs that a producer of ``clock_app`` enqueues and that start soon."""
    several = [f"{stage}-{kind}-{n}" for kind in ("shared", "alone") for n in range(3)]
    return [f"{stage}-soon", f"{stage}-expires", *several]


class Event(NamedTuple):
    what: str
    name: str
    pid: int
    mono: float


class Scene:
    """One store, its processes, and the file in which they record events."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._folder = folder
        self._events = folder / "events"
        self._events.touch()
        # Thirty minutes from now: a clock that is an hour ahead has passed it.
        minute = time.gmtime(time.time() + 1800).tm_min
        self._own = {
            "FORGE_URL": url,
            "CLOCK_EVENTS": str(self._events),
            "CLOCK_MINUTE": str(minute),
            "CLOCK_SLOTS": str(SLOTS),
        }

    def environment(self, clock: WrongClock | None) -> Mapping[str, str]:
        return {**os.environ, **self._own, **({} if clock is None else clock.environment)}

    @contextmanager
    def worker(self, queues: str, lease_s: float, clock: WrongClock | None) -> Iterator[None]:
        """A real ``forge worker``, with the correct time or a wrong clock."""
        words = ["worker", "clock_app:forge", "--queues", queues, "--lease", f"{lease_s}s"]
        with (self._folder / "workers.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "forge_jobs", *words, "--grace", "1s"],
                cwd=HERE,
                env=self.environment(clock),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    async def run(self, *words: str, clock: WrongClock | None = None) -> str:
        """Run a command with the correct time or a wrong clock; its output."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            cwd=HERE,
            env=self.environment(clock),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        async with asyncio.timeout(TIMEOUT_S):
            out, complaint = await process.communicate()
        assert process.returncode == 0, complaint.decode()
        return out.decode().strip()

    def events(self) -> list[Event]:
        return [Event(**json.loads(line)) for line in self._events.read_text().splitlines()]

    def started(self) -> Counter[str]:
        """How often each job started."""
        return Counter(event.name for event in self.events() if event.what == "start")

    def at(self, what: str, name: str) -> float:
        return next(n.mono for n in self.events() if (n.what, n.name) == (what, name))

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not holds():
            said = (self._folder / "workers.log").read_text()[-4000:]
            assert time.monotonic() < deadline, f"{what} does not come:\n{self.events()}\n{said}"
            await asyncio.sleep(0.05)

    async def ended(self, names: Iterable[str]) -> None:
        """Wait until each of these jobs has ended at least once."""
        wanted = set(names)

        def done() -> bool:
            return wanted <= {event.name for event in self.events() if event.what == "end"}

        await self.until(done, f"the end of {sorted(wanted)}")

    def max_concurrent(self, part: str) -> int:
        """How many jobs with ``part`` in their names ran at the same time."""
        max_running = running = 0
        for event in sorted(self.events(), key=lambda event: event.mono):
            if part in event.name and event.what in ("start", "end"):
                running += 1 if event.what == "start" else -1
                max_running = max(max_running, running)
        return max_running
