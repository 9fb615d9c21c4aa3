"""The files and functions that a job enters on its way from `enqueue` to `result()`, traced.

A program of its own (`structure.probe`) runs on the tree and records windows with one job each, and
after each of them a window of at least the same length without a job. These rules turn the windows
into figures:

- "Seen" is what at least one job window holds. It depends on chance: a periodic service, such as
  the heartbeat, may tick during a job.
- "On the way" is what at least half of the job windows hold, less what half of the idle windows
  hold. Only the shorter half of the windows counts, because something else delayed the others. A
  window takes a few milliseconds and the services tick every half second or less often, at moments
  that differ from window to window, so they do not reach half. Helpers that both a job and a
  service use stay in, because the job does pass through them.
- What any idle window holds is not subtracted: one tick would remove the shared helpers of the
  store, another run would keep them.

The files on the way are the same in every run on a machine that is not overloaded. The functions
may differ by one or two: some run at the same time as the return of `result()`, or only if a thread
was late.

Coroutines count when they are resumed. Only Python is traced; functions in the database are not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROBE = Path(__file__).with_name("probe.py")
WINDOWS = 21
_SHARE = 0.5
_LIMIT_S = 120.0

Function = tuple[str, str]
"""A file below src and the qualified name of a function in it."""
Window = frozenset[Function]


class ProbeFailed(Exception):
    """The program that runs jobs ended with an error."""


@dataclass(frozen=True, slots=True)
class Way:
    """What the windows of one run hold."""

    seen: frozenset[Function]
    on_the_way: frozenset[Function]
    idle: frozenset[Function]

    @property
    def files(self) -> set[str]:
        """The files on the way."""
        return files(self.on_the_way)


def files(functions: frozenset[Function]) -> set[str]:
    """The files that hold these functions."""
    return {file for file, _ in functions}


def traced(source: Path, url: str, *, windows: int = WINDOWS) -> Way:
    """Trace jobs through the package in the folder `source`, on a store that is empty."""
    # Settings of the developer must not change the way.
    plain = {k: v for k, v in os.environ.items() if not k.startswith("FORGE_")}
    ended = subprocess.run(
        [sys.executable, str(PROBE), url, str(source), str(windows)],
        env={**plain, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if ended.returncode:
        raise ProbeFailed(f"the probe failed on {source}:\n{ended.stderr[-3000:]}")
    recorded = json.loads(ended.stdout)
    return way(_windows(recorded["job"]), _windows(recorded["idle"]), recorded["seconds"])


def way(jobs: Sequence[Window], idle: Sequence[Window], seconds: Sequence[float]) -> Way:
    """Apply the rules to windows in the order of time; `seconds` is the length of each."""
    by_length = sorted(range(len(jobs)), key=lambda number: seconds[number])
    quick = by_length[: len(jobs) // 2 + 1]
    return Way(
        seen=frozenset[Function]().union(*jobs),
        on_the_way=_usual([jobs[n] for n in quick]) - _usual([idle[n] for n in quick]),
        idle=frozenset[Function]().union(*idle),
    )


def _windows(recorded: list[list[list[str]]]) -> list[Window]:
    return [frozenset((file, name) for file, name in window) for window in recorded]


def _usual(windows: Sequence[Window]) -> Window:
    counted = Counter(one for window in windows for one in window)
    return frozenset(one for one, times in counted.items() if times >= _SHARE * len(windows))
