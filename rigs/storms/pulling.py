"""Eight scripts with a ``JobQueue`` over one store: each job is completed exactly once.

First in peace, then while scripts are killed and others take their place. No worker and no service
runs. A completion is told after it was stored, so a killed script may keep one to itself: in the
second round none may be told twice, and in the end every job is completed.
"""

import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from forge_jobs import JobQueue
from rigs.storms.databases import open_database
from rigs.storms.order import Order

BACKENDS = ("sqlite", "postgres")
SCRIPT = Path(__file__).parent.parent / "pull" / "script.py"
SCRIPTS = 8
_LIMIT_S = 600.0

Script = subprocess.Popen[str]


@dataclass(frozen=True)
class Options:
    """How much of it; ``jobs`` per round."""

    jobs: int = 1_000 * SCRIPTS
    kills: int = 20
    seed: int = 0


def storm(backend: str, order: Order) -> bool:
    """Raise it; whether every job was completed exactly once."""
    asked = order.apply(Options(), Options(jobs=100 * SCRIPTS, kills=3))
    each, kills, dice = asked.jobs // SCRIPTS, asked.kills, random.Random(asked.seed)
    with order.folder() as folder, open_database(backend, folder) as database:
        peaceful = _round(database.url, each, 0, dice, folder / "peace")
        killed = _round(database.url, each, kills, dice, folder / "kills")
        with JobQueue.open(database.url) as queue:
            counts = queue.counts()
    jobs = SCRIPTS * each
    twice = [job for told in (peaceful, killed) for job, times in told.items() if times > 1]
    print(f"pull on {backend}: {SCRIPTS} scripts, {jobs:,} jobs in peace and with {kills} kills")
    print(f"  told {len(peaceful):,} and {len(killed):,}, twice {len(twice)}; in the end {counts}")
    everything = counts["completed"] == 2 * jobs == sum(counts.values())
    return everything and len(peaceful) == jobs and not twice


def _round(url: str, each: int, kills: int, dice: random.Random, told: Path) -> Counter[str]:
    """Scripts put jobs in and work them off; some are killed on the way, and replaced."""
    told.mkdir()
    files = [told / str(number) for number in range(SCRIPTS)]
    scripts = [_start(url, each, file) for file in files]
    until = time.monotonic() + _LIMIT_S
    try:
        for script in scripts:
            _begin(script)
        for number in range(kills):
            time.sleep(dice.uniform(0.2, 0.6))
            victim = dice.randrange(SCRIPTS)
            # Not before all of its jobs are in: a script that is killed must not owe any.
            if "ready" in files[victim].read_text():
                scripts[victim].kill()
                scripts[victim].communicate()
                files[victim] = told / f"{victim}-{number}"
                scripts[victim] = _start(url, 0, files[victim])
                _begin(scripts[victim])
        for script in scripts:
            script.wait(max(until - time.monotonic(), 1))
        # What the last one to be killed held comes back when its lease has ended.
        _sweep(url, until, told / "last")
    finally:
        for script in scripts:
            script.kill()
            script.communicate()
    words = [word for file in told.iterdir() for word in file.read_text().split()]
    return Counter(word for word in words if word != "ready")


def _start(url: str, jobs: int, told: Path) -> Script:
    with told.open("w") as out:
        return subprocess.Popen(
            [sys.executable, str(SCRIPT), "produce_and_drain", url, str(jobs)],
            stdin=subprocess.PIPE,
            stdout=out,
            text=True,
        )


def _begin(script: Script) -> None:
    assert script.stdin is not None
    with suppress(BrokenPipeError):
        script.stdin.write("go\n")
        script.stdin.flush()


def _sweep(url: str, until: float, told: Path) -> None:
    with JobQueue.open(url) as queue, told.open("w") as out:
        while time.monotonic() < until and _left(queue):
            job = queue.dequeue()
            if job is None:
                time.sleep(0.2)
                continue
            queue.complete(job)
            print(job.id, file=out, flush=True)


def _left(queue: JobQueue) -> int:
    counts = queue.counts()
    return counts["pending"] + counts["running"] + counts["failed"]
