"""A producer of the versions storm: enqueues jobs as its version of the application does.

``python -m rigs.storms.version_producer NAME JOBS SEED SECONDS``, with STORM_VERSION.
"""

import random
import sys
from collections.abc import Iterator

from rigs.storms.producer import EnqueueCall, run
from rigs.storms.version_jobs import VERSION, arguments, forge

KINDS = ("same", "optional", "optional", "renamed", "typed", "chain")


def plan(producer: str, jobs: int, seed: int) -> Iterator[EnqueueCall]:
    """The producer's calls, the same after every restart."""
    rng = random.Random(f"{seed}-{producer}")
    kinds = (*KINDS, "fresh") if VERSION == "new" else KINDS
    for number in range(jobs):
        kind = "heavy" if rng.random() < 0.02 else rng.choice(kinds)
        longest = 500 if rng.random() < 0.03 else 30
        ms = round(rng.uniform(0, longest), 1)
        yield EnqueueCall((f"{producer}-{number}",), kind, (ms,), keyed=rng.random() < 0.5)


def enqueue(call: EnqueueCall) -> list[str]:
    """Enqueue by the task itself; the kind and its arguments are those of this version."""
    name, ms = call.names[0], call.ms[0]
    task = forge.tasks[call.task]
    options = {"dedupe_key": name, "dedupe_for": "1h"} if call.keyed else {}
    return [task.using(**options).enqueue(**arguments(call.task, name, ms)).id]


def main(producer: str, jobs: int, seed: int, seconds: float) -> None:
    run(producer, list(plan(producer, jobs, seed)), seconds, enqueue)
    forge.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
