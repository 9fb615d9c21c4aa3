"""A producer of the storm: enqueues its share, one way after the other; killed, it goes on.

``python -m rigs.storms.producer NAME JOBS SEED SECONDS``. Its history says what was begun
(*invoke*) and what was acknowledged (*ok*). After a restart a begun call without an answer is
*unknown*: with a dedupe key it is repeated, without one it is left alone. The same holds for a call
whose error says that its effect is unknown. One that certainly had none (*refused*) is repeated.
"""

import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forge_jobs.core.errors import Unavailable, Unknown
from rigs.storms.history import History, now, read
from rigs.storms.jobs import forge, heavy, soft, threaded

BATCH = 10


@dataclass(frozen=True)
class Call:
    """One call to enqueue: several names make a batch, a key makes it safe to repeat."""

    names: tuple[str, ...]
    task: str
    ms: tuple[float, ...]
    keyed: bool


def plan(who: str, jobs: int, seed: int) -> Iterator[Call]:
    """The producer's calls, the same after every restart."""
    chance = random.Random(f"{seed}-{who}")
    made = 0
    while made < jobs:
        roll = chance.random()
        size = min(BATCH if roll < 0.1 else 1, jobs - made)
        task = "heavy" if size == 1 and roll > 0.99 else "threaded" if roll > 0.8 else "soft"
        names = tuple(f"{who}-{made + number}" for number in range(size))
        # A few long ones: a kill is more likely to hit something.
        longest = 1_000 if chance.random() < 0.03 else 50
        ms = tuple(round(chance.uniform(0, longest), 1) for _ in names)
        yield Call(names, task, ms, keyed=size == 1 and chance.random() < 0.5)
        made += size


def enqueue(call: Call) -> list[str]:
    task: Any = {"heavy": heavy, "threaded": threaded, "soft": soft}[call.task]
    if len(call.names) > 1:
        return [job.id for job in task.enqueue_many(list(zip(call.names, call.ms, strict=True)))]
    if call.keyed:
        task = task.using(dedupe_key=call.names[0], dedupe_for="1h")
    return [task.enqueue(call.names[0], call.ms[0]).id]


def insist(call: Call, history: History) -> list[str] | None:
    """Enqueue through outages; None when nobody can say whether the jobs are there."""
    chance = random.Random(call.names[0])
    while True:
        try:
            return enqueue(call)
        except Unavailable as error:
            history.write("refused", names=call.names, error=str(error))
        except Unknown as error:
            history.write("unknown", names=call.names, error=str(error))
            if not call.keyed:
                return None
        time.sleep(chance.uniform(0.1, 0.5))


def main(who: str, jobs: int, seed: int, seconds: float) -> None:
    path = Path(os.environ["STORM_FOLDER"]) / f"producer-{who}.jsonl"
    path.touch()
    seen = list(read(path))
    begun = {name for entry in seen if entry["op"] == "invoke" for name in entry["names"]}
    answered = {name for entry in seen if entry["op"] == "ok" for name in entry["names"]}
    history = History(path)
    calls = list(plan(who, jobs, seed))
    began_at = min((entry["at"] for entry in seen if entry["op"] == "invoke"), default=now())
    for number, call in enumerate(calls):
        if call.names[0] in answered or (call.names[0] in begun and not call.keyed):
            continue
        wait_s = began_at + seconds * number / len(calls) - now()
        if wait_s > 0:
            time.sleep(wait_s)
        history.write("invoke", names=call.names, keyed=call.keyed)
        ids = insist(call, history)
        if ids is not None:
            history.write("ok", names=call.names, ids=ids)
    history.write("finished")
    forge.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
