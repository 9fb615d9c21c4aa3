"""A producer of the storm: enqueues its share in several ways; after a kill it continues.

``python -m rigs.storms.producer NAME JOBS SEED SECONDS``. Its history records calls (*invoke*) and
acknowledgements (*ok*). After a restart, a call without an acknowledgement is *unknown*: it is
repeated if it has a dedupe key, otherwise not. The same holds for a call whose error says that its
effect is unknown. A call that certainly had no effect (*refused*) is repeated.
"""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forge_jobs.core.errors import Unavailable, Unknown
from rigs.storms.history import History, now, read
from rigs.storms.jobs import forge, heavy, soft, threaded

BATCH = 10


@dataclass(frozen=True)
class EnqueueCall:
    """One enqueue call: several names make a batch; a dedupe key makes it safe to repeat."""

    names: tuple[str, ...]
    task: str
    ms: tuple[float, ...]
    keyed: bool


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
        yield EnqueueCall(names, task, ms, keyed=size == 1 and rng.random() < 0.5)
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
    while True:
        try:
            return enqueue(call)
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
        ids = enqueue_with_retries(call, history, enqueue)
        if ids is not None:
            history.write("ok", names=call.names, ids=ids)
    history.write("finished")


def main(producer: str, jobs: int, seed: int, seconds: float) -> None:
    run(producer, list(plan(producer, jobs, seed)), seconds, enqueue)
    forge.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
