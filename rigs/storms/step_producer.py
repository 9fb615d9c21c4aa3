"""The producer of the steps storm: enqueues workflows and sends the event of each.

``python -m rigs.storms.step_producer NAME JOBS SEED KILLS``. It goes on as the kills do, so that
each of them meets workflows that run. Every second event is sent at once, before its workflow
waits; the others are sent some workflows later. Every call has a dedupe key, so that it can be
repeated. There is one producer; it creates the table of payments.
"""

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from forge_jobs.core.errors import StoreError
from rigs.storms.history import History, read
from rigs.storms.step_jobs import changing, create_payments, flow, forge, payment, plain
from rigs.storms.step_workload import EVENT, event_for

T = TypeVar("T")
# How many workflows later an event is sent.
LATER = 15


def main(producer: str, jobs: int, seed: int, kills: int) -> None:
    folder = Path(os.environ["STORM_FOLDER"])
    history = History(folder / f"producer-{producer}.jsonl")
    rng = random.Random(f"{seed}-{producer}")
    create_payments()
    held: list[str] = []
    for number in range(jobs):
        name = f"{producer}-{number}"
        task = (flow, plain, payment, flow, changing)[number % 5]
        history.write("invoke", names=[name], keyed=True)
        keyed = task.using(dedupe_key=name, dedupe_for="1h")
        job = _repeated(lambda keyed=keyed, name=name: keyed.enqueue(name), history)
        history.write("ok", names=[name], ids=[job.id])
        if rng.random() < 0.5:
            _send(name, history)
        else:
            held.append(name)
        if len(held) > LATER:
            _send(held.pop(0), history)
        while _kills(folder) < kills * number // jobs:
            time.sleep(0.05)
    for name in held:
        _send(name, history)
    history.write("finished")


def _kills(folder: Path) -> int:
    return sum(one["op"] == "kill" for one in read(folder / "killer.jsonl"))


def _send(name: str, history: History) -> None:
    _repeated(lambda: forge.send(EVENT, event_for(name), key=name, dedupe_key=name), history)
    history.write("sent", names=[name])


def _repeated(call: Callable[[], T], history: History) -> T:
    while True:
        try:
            return call()
        except StoreError as error:
            history.write("refused", error=str(error))
            time.sleep(0.2)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
