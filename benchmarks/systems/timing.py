"""Clocks of a child: one span of wall and processor time, and the stamps of arriving jobs.

`time.monotonic` counts from the same instant in every process of a machine (Linux, macOS), so a
producer's stamp can be subtracted from a worker's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


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
