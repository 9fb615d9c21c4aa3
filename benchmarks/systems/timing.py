"""Clocks of a child: one span of wall and processor time, and the stamps of arriving jobs.

`time.monotonic` counts from the same instant in every process of a machine (Linux, macOS), so a
producer's stamp can be subtracted from a worker's.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Beside the file of the stamps: tells a worker to stop.
STOP_SUFFIX = ".stop"


def span(action: Callable[[], object], jobs: int) -> dict[str, Any]:
    """Run once; wall seconds, processor seconds of this process, and jobs."""
    cpu = time.process_time()
    started = time.monotonic()
    action()
    seconds = time.monotonic() - started
    return {"jobs": jobs, "seconds": seconds, "cpu": time.process_time() - cpu}


@dataclass(slots=True)
class Arrivals:
    """What a worker saw: when each job was sent and when its handler began."""

    started: list[float] = field(default_factory=list[float])
    sent: list[float] = field(default_factory=list[float])

    def note(self, sent: float) -> None:
        self.started.append(time.monotonic())
        self.sent.append(sent)

    def milliseconds(self) -> list[float]:
        return [(a - b) * 1_000 for a, b in zip(self.started, self.sent, strict=True)]


def trickle(send: Callable[[float], object], count: int, gap: float) -> list[float]:
    """Enqueue with uneven pauses, so that no poll falls into step; milliseconds of each call."""
    dice = random.Random(7)
    calls: list[float] = []
    for _ in range(count):
        time.sleep(gap * (0.5 + dice.random()))
        sent = time.monotonic()
        send(sent)
        calls.append((time.monotonic() - sent) * 1_000)
    return calls


async def trickle_async(
    send: Callable[[float], Awaitable[object]], count: int, gap: float
) -> list[float]:
    """The same from asynchronous code."""
    dice = random.Random(7)
    calls: list[float] = []
    for _ in range(count):
        await asyncio.sleep(gap * (0.5 + dice.random()))
        sent = time.monotonic()
        await send(sent)
        calls.append((time.monotonic() - sent) * 1_000)
    return calls


async def span_async(action: Coroutine[Any, Any, object], jobs: int) -> dict[str, Any]:
    """`span` within a running event loop."""
    cpu = time.process_time()
    started = time.monotonic()
    await action
    seconds = time.monotonic() - started
    return {"jobs": jobs, "seconds": seconds, "cpu": time.process_time() - cpu}


async def callers(count: int, share: int, call: Callable[[], Awaitable[object]]) -> None:
    """So many callers at once, each awaiting one call after the other."""

    async def caller() -> None:
        for _ in range(share):
            await call()

    await asyncio.gather(*(caller() for _ in range(count)))


class Notes:
    """What one handler after the other notes while a command runs; `file`: where stamps go."""

    file: Path

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.values: list[float] = []
        self.count = 0
        self.since: float | None = None
        self._ended = threading.Event()

    def add(self, value: float) -> None:
        self.values.append(value)

    async def arrived(self) -> None:
        """A step: the milliseconds since `since`."""
        assert self.since is not None
        self.add((time.monotonic() - self.since) * 1_000)

    async def stamp(self, sent: float) -> None:
        """A step: one line with the milliseconds since `sent`."""
        milliseconds = (time.monotonic() - sent) * 1_000
        with self.file.open("a") as stamps:
            stamps.write(f"{milliseconds!r}\n")

    def end(self) -> None:
        self._ended.set()

    async def ended(self) -> None:
        """Until a handler has called `end`, on whatever event loop."""
        while not self._ended.is_set():
            await asyncio.sleep(0.005)
