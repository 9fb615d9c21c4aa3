"""Run jobs and record which functions of forge_jobs are entered. Started by `structure.way`.

`python probe.py URL SOURCE WINDOWS`, with SOURCE (the folder that holds forge_jobs) on PYTHONPATH.
The program uses public names only, so that it runs on any commit. It prints one JSON object:
`job` and `idle` are lists of windows, each window a list of [file, function]; `seconds` tells how
long the job windows were.

Every thread is profiled. A job window opens just before `enqueue` and closes when `result()` has
returned. An idle window follows each of them, at least as long and without a job. Jobs that ran
before the first window have paid for imports, migrations and start-up.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

WARM_UP_JOBS = 10
# Longer than any step that a worker takes after a job has finished.
GAP_S = 0.12
# The gap grows by this much per window, so that no window keeps step with a periodic service.
GAP_STEP_S = 0.007
RESULT_S = 30.0
# Python 3.12 inlines comprehensions, 3.11 does not; neither is a function that somebody named.
NOT_FUNCTIONS = frozenset({"<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})

Window = set[tuple[str, str]]


class Recorder:
    """A profile function that records into the open window."""

    def __init__(self, source: str) -> None:
        self._prefix = source.rstrip("/") + "/forge_jobs/"
        self._open: Window | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        window = self._open
        if window is not None and event == "call":
            code = frame.f_code
            if code.co_filename.startswith(self._prefix) and code.co_name not in NOT_FUNCTIONS:
                window.add((code.co_filename, code.co_qualname))

    def open(self) -> Window:
        window: Window = set()
        self._open = window
        return window

    def close(self) -> None:
        self._open = None


@dataclass
class Recorded:
    """The windows of a run, in order."""

    job: list[Window] = field(default_factory=list[Window])
    idle: list[Window] = field(default_factory=list[Window])
    seconds: list[float] = field(default_factory=list[float])


def sample(task: Any, recorder: Recorder, windows: int) -> Recorded:
    """The windows, in turn: one with a job, one without."""
    found = Recorded()
    for number in range(WARM_UP_JOBS):
        assert task.enqueue(number).result(timeout=RESULT_S) == number
        time.sleep(GAP_S / 2)
    for number in range(windows):
        time.sleep(GAP_S + number * GAP_STEP_S)
        began = time.monotonic()
        window = recorder.open()
        result = task.enqueue(number).result(timeout=RESULT_S)
        recorder.close()
        length = time.monotonic() - began
        assert result == number
        found.job.append(window)
        found.seconds.append(length)
        time.sleep(GAP_S + number * GAP_STEP_S)
        found.idle.append(recorder.open())
        time.sleep(length)
        recorder.close()
    return found


async def run(url: str, recorder: Recorder, windows: int) -> Recorded:
    """A worker on this loop; the caller is synchronous code on another thread."""
    from forge_jobs import Forge

    forge = Forge(url)

    @forge.task(queue="measured")
    async def measured(number: int) -> int:
        return number

    async with forge.worker(queues=["measured"]):
        found = await asyncio.to_thread(sample, measured, recorder, windows)
    return found


def main() -> None:
    url, source, windows = sys.argv[1], str(Path(sys.argv[2]).resolve()), int(sys.argv[3])
    recorder = Recorder(source)
    # Before any thread exists: Python 3.11 can set the profile function of new threads only.
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    found = asyncio.run(run(url, recorder, windows))
    sys.setprofile(None)
    loaded = Path(sys.modules["forge_jobs"].__file__ or "").resolve().parent.parent
    if str(loaded) != source:
        sys.exit(f"forge_jobs was loaded from {loaded}, not from {source}")
    named = {
        kind: [[[file[len(source) + 1 :], name] for file, name in sorted(one)] for one in several]
        for kind, several in (("job", found.job), ("idle", found.idle))
    }
    print(json.dumps({**named, "seconds": found.seconds}))


if __name__ == "__main__":
    main()
