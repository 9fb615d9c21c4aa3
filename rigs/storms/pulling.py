"""The pull storm: eight scripts with a ``JobQueue`` on one store complete each job exactly once.

The first round has no kills; in the second, scripts are killed and replaced. No worker and no
service runs. A script reports a completion after it was stored, so a killed script may not report
one: in the second round none may be reported twice, and in the end every job is completed.
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
from rigs.storms.arguments import StormArguments
from rigs.storms.databases import open_database

BACKENDS = ("sqlite", "postgres")
SCRIPT = Path(__file__).parents[2] / "tests" / "pull" / "script.py"
SCRIPTS = 8
_LIMIT_S = 600.0

Script = subprocess.Popen[str]


@dataclass(frozen=True)
class PullOptions:
    """The size of the storm; ``jobs`` per round."""

    jobs: int = 1_000 * SCRIPTS
    kills: int = 20
    seed: int = 0


def storm(backend: str, arguments: StormArguments) -> bool:
    """Run the storm; True if every job was completed exactly once."""
    options = arguments.apply(PullOptions(), PullOptions(jobs=100 * SCRIPTS, kills=3))
    each, kills, rng = options.jobs // SCRIPTS, options.kills, random.Random(options.seed)
    if not each:
        print(f"FAILED: {options.jobs} jobs for {SCRIPTS} scripts: nothing would be done")
        return False
    with arguments.folder() as folder, open_database(backend, folder) as database:
        undisturbed = _round(database.url, each, 0, rng, folder / "peace")
        killed = _round(database.url, each, kills, rng, folder / "kills")
        with JobQueue.open(database.url) as queue:
            counts = queue.counts()
    jobs = SCRIPTS * each
    twice = [
        job for completed in (undisturbed, killed) for job, times in completed.items() if times > 1
    ]
    print(f"pull on {backend}: {SCRIPTS} scripts, {jobs:,} jobs without and with {kills} kills")
    print(
        f"  reported {len(undisturbed):,} and {len(killed):,}, twice {len(twice)}; counts {counts}"
    )
    everything = counts["completed"] == 2 * jobs == sum(counts.values())
    return everything and len(undisturbed) == jobs and not twice


def _round(url: str, each: int, kills: int, rng: random.Random, completed: Path) -> Counter[str]:
    """Let scripts enqueue and complete jobs; some are killed and replaced."""
    completed.mkdir()
    files = [completed / str(number) for number in range(SCRIPTS)]
    scripts = [_start(url, each, file) for file in files]
    until = time.monotonic() + _LIMIT_S
    try:
        for script in scripts:
            _release_script(script)
        for number in range(kills):
            time.sleep(rng.uniform(0.2, 0.6))
            victim = rng.randrange(SCRIPTS)
            # Only after all of its jobs are enqueued, so that the total is known.
            if "ready" in files[victim].read_text():
                scripts[victim].kill()
                scripts[victim].communicate()
                files[victim] = completed / f"{victim}-{number}"
                scripts[victim] = _start(url, 0, files[victim])
                _release_script(scripts[victim])
        for script in scripts:
            script.wait(max(until - time.monotonic(), 1))
        # Jobs of the script killed last become available when its claim leases expire.
        _complete_rest(url, until, completed / "last")
    finally:
        for script in scripts:
            script.kill()
            script.communicate()
    lines = [word for file in completed.iterdir() for word in file.read_text().split()]
    return Counter(word for word in lines if word != "ready")


def _start(url: str, jobs: int, completed: Path) -> Script:
    with completed.open("w") as out:
        return subprocess.Popen(
            [sys.executable, str(SCRIPT), "produce_and_drain", url, str(jobs)],
            stdin=subprocess.PIPE,
            stdout=out,
            text=True,
        )


def _release_script(script: Script) -> None:
    assert script.stdin is not None
    with suppress(BrokenPipeError):
        script.stdin.write("go\n")
        script.stdin.flush()


def _complete_rest(url: str, until: float, completed: Path) -> None:
    with JobQueue.open(url) as queue, completed.open("w") as out:
        while time.monotonic() < until and _unfinished(queue):
            job = queue.dequeue()
            if job is None:
                time.sleep(0.2)
                continue
            queue.complete(job)
            print(job.id, file=out, flush=True)


def _unfinished(queue: JobQueue) -> int:
    counts = queue.counts()
    return counts["pending"] + counts["running"] + counts["failed"]
