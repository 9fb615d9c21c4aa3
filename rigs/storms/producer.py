"""A producer of the storm: enqueues its share in several ways; after a kill it continues.

``python -m rigs.storms.producer NAME JOBS SEED SECONDS``. Its history records calls (*invoke*) and
acknowledgements (*ok*). After a restart, a call without an acknowledgement is *unknown*: it is
repeated if it has a dedupe key, otherwise not. The same holds for a call whose error says that its
effect is unknown. A call that certainly had no effect (*refused*) is repeated.

Some calls are made in a forked child, some are interrupted by an exception of a signal handler, as
by Ctrl-C or a soft time limit.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from forge_jobs.core.errors import Unavailable, Unknown
from rigs.storms.history import History, now, read
from rigs.storms.jobs import forge, heavy, soft, threaded

BATCH = 10
FORKED_SHARE, FAULTY_SHARE = 0.02, 0.08


@dataclass(frozen=True)
class EnqueueCall:
    """One enqueue call: several names make a batch; a dedupe key makes it safe to repeat.
    ``interrupt_ms``: an exception is raised in it after that time."""

    names: tuple[str, ...]
    task: str
    ms: tuple[float, ...]
    keyed: bool
    forked: bool = False
    interrupt_ms: float | None = None


def plan(producer: str, jobs: int, seed: int) -> Iterator[EnqueueCall]:
    """The producer's calls, the same after every restart."""
    rng = random.Random(f"{seed}-{producer}")
    planned = 0
    while planned < jobs:
        roll = rng.random()
        size = min(BATCH if roll < 0.1 else 1, jobs - planned)
        task = "heavy" if size == 1 and roll > 0.99 else "threaded" if roll > 0.8 else "soft"
        names = tuple(f"{producer}-{planned + number}" for number in range(size))
        # A few long jobs, so that a kill is more likely to interrupt one.
        longest = 1_000 if rng.random() < 0.03 else 50
        ms = tuple(round(rng.uniform(0, longest), 1) for _ in names)
        keyed, fault = size == 1 and rng.random() < 0.5, rng.random()
        interrupt_ms = rng.expovariate(0.5) if FORKED_SHARE <= fault < FAULTY_SHARE else None
        yield EnqueueCall(
            names, task, ms, keyed, forked=fault < FORKED_SHARE, interrupt_ms=interrupt_ms
        )
        planned += size


def enqueue(call: EnqueueCall) -> list[str]:
    task: Any = {"heavy": heavy, "threaded": threaded, "soft": soft}[call.task]
    if len(call.names) > 1:
        return [job.id for job in task.enqueue_many(list(zip(call.names, call.ms, strict=True)))]
    if call.keyed:
        task = task.using(dedupe_key=call.names[0], dedupe_for="1h")
    return [task.enqueue(call.names[0], call.ms[0]).id]


def enqueue_with_retries(
    call: EnqueueCall, history: History, enqueue: Callable[[EnqueueCall], list[str]]
) -> list[str] | None:
    """Enqueue with retries during outages; None if it is unknown whether the jobs are stored."""
    rng = random.Random(call.names[0])
    interrupt_ms = call.interrupt_ms
    while True:
        try:
            if interrupt_ms is None:
                return enqueue(call)
            with _Interrupt(interrupt_ms):
                return enqueue(call)
        except Interrupted:
            history.write("interrupted", names=call.names)
            interrupt_ms = None
            if not call.keyed:
                return None
        except Unavailable as error:
            history.write("refused", names=call.names, error=str(error))
        except Unknown as error:
            history.write("unknown", names=call.names, error=str(error))
            if not call.keyed:
                return None
        time.sleep(rng.uniform(0.1, 0.5))


def run(
    producer: str,
    calls: Sequence[EnqueueCall],
    seconds: float,
    enqueue: Callable[[EnqueueCall], list[str]],
) -> None:
    """Make the calls that were not made yet, spread over so many seconds."""
    path = Path(os.environ["STORM_FOLDER"]) / f"producer-{producer}.jsonl"
    path.touch()
    seen = list(read(path))
    invoked = {name for entry in seen if entry["op"] == "invoke" for name in entry["names"]}
    acknowledged = {name for entry in seen if entry["op"] == "ok" for name in entry["names"]}
    history = History(path)
    started_at = min((entry["at"] for entry in seen if entry["op"] == "invoke"), default=now())
    for number, call in enumerate(calls):
        if call.names[0] in acknowledged or (call.names[0] in invoked and not call.keyed):
            continue
        wait_s = started_at + seconds * number / len(calls) - now()
        if wait_s > 0:
            time.sleep(wait_s)
        history.write("invoke", names=call.names, keyed=call.keyed)
        if call.forked:
            _make_in_a_fork(call, history, enqueue)
        else:
            _make(call, history, enqueue)
    history.write("finished")


def _make(call: EnqueueCall, history: History, enqueue: Callable[[EnqueueCall], list[str]]) -> None:
    ids = enqueue_with_retries(call, history, enqueue)
    if ids is not None:
        history.write("ok", names=call.names, ids=ids)


def _make_in_a_fork(
    call: EnqueueCall, history: History, enqueue: Callable[[EnqueueCall], list[str]]
) -> None:
    """The child inherits an open Forge, and goes on by itself if this process is killed."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _make(call, history, enqueue)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    history.write("forked", status=status)
    if status:
        raise RuntimeError(f"a forked child exited with {status}")


class Interrupted(Exception):
    """Raised by a signal handler wherever the call is."""


class _Interrupt:
    """Raises once inside a ``with`` block, after so many milliseconds."""

    def __init__(self, after_ms: float) -> None:
        self._armed = False
        self._after_s = max(after_ms, 0.01) / 1000

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._raise)
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, self._after_s)

    def __exit__(self, *error: object) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise Interrupted


def main(producer: str, jobs: int, seed: int, seconds: float) -> None:
    run(producer, list(plan(producer, jobs, seed)), seconds, enqueue)
    forge.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
