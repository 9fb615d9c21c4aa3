"""The limit storm: concurrency keys, rates and lanes while workers are killed.

A key with concurrency 1 never runs two jobs at once, a rate is exceeded by at most one burst, jobs
of a serial lane never overlap and start in the order of enqueueing, and in a strict lane no job
starts before every older one has ended.
"""

import asyncio
import itertools
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forge_jobs import Forge
from rigs.storms.arguments import StormArguments
from rigs.storms.databases import Database, open_database, pids, states
from rigs.storms.front_door import ROOT, ForgeWorker, worker_command
from rigs.storms.history import History, now, read_all
from rigs.storms.rig import StormFailed

BACKENDS = ("sqlite", "postgres")
RATE = 100
# The store counts a start when the job is claimed; its handler may start this much later.
MAX_CLAIM_DELAY_S = 0.3


@dataclass(frozen=True)
class LimitOptions:
    """``jobs`` over ``keys``; ``lanes``, half of them strict, with ``depth`` jobs each."""

    jobs: int = 20_000
    keys: int = 40
    lanes: int = 200
    depth: int = 20
    rated_s: float = 20.0
    workers: int = 4
    kills: int = 12
    every_s: float = 2.0
    lease_s: float = 2.0
    drain_s: float = 240.0
    seed: int = 0


QUICK = LimitOptions(
    jobs=500, keys=4, lanes=12, depth=6, rated_s=3.0, workers=3, kills=2, every_s=0.4,
    lease_s=1.0, drain_s=45.0,
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One run of a handler; ``end`` is the time of the kill if its process was killed."""

    group: str
    position: int
    start: float
    end: float


def storm(backend: str, arguments: StormArguments) -> bool:
    """Run the storm; True if every check passed."""
    options = arguments.apply(LimitOptions(), QUICK)
    print(
        f"Limit storm on {backend}: {options.jobs:,} jobs of {options.keys} keys limited to one, "
        f"{options.lanes} lanes of {options.depth}, {RATE}/s over {options.rated_s:g} s, "
        f"{options.workers} processes, {options.kills} kills, seed {options.seed}.",
        flush=True,
    )
    try:
        with arguments.folder() as folder, open_database(backend, folder) as database:
            asyncio.run(LimitRig(options, folder, database).run())
            check_limits(read_all(folder), options)
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


# ------------------------------------------------------------------------------------ the checks


def check_limits(entries: list[dict[str, Any]], options: LimitOptions) -> None:
    """Raises StormFailed for the first check that fails."""
    runs = _runs(entries)
    print(f"  runs: {', '.join(f'{len(of):,} {sort}' for sort, of in sorted(runs.items()))}")
    for sort in ("keyed", "lined", "rated"):
        if not runs[sort]:
            raise StormFailed(f"no {sort} job ran: the run proves nothing")
    _check_exclusive(runs["keyed"], "key")
    _check_exclusive(runs["lined"], "lane")
    if len(runs["keyed"]) < options.jobs:
        raise StormFailed(f"only {len(runs['keyed']):,} runs of {options.jobs:,} keyed jobs")
    for lane, of in _by_group(runs["lined"]).items():
        if lane.startswith("strict"):
            _check_strict_order(lane, of)
        else:
            _check_start_order(lane, of)
    _check_rate(sorted(run.start for run in runs["rated"]), options)


def _runs(entries: Iterable[dict[str, Any]]) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = defaultdict(list)
    open_: dict[tuple[int, str, str, int], float] = {}
    for entry in entries:
        pid = entry["victim"] if entry["op"] == "kill" else entry["pid"]
        if entry["op"] == "kill":
            for name in [name for name in open_ if name[0] == pid]:
                start = open_.pop(name)
                runs[name[1]].append(Run(name[2], name[3], start, entry["at"]))
            continue
        if entry["op"] not in ("start", "end"):
            continue
        name = (pid, entry["sort"], entry["group"], entry.get("place", 0))
        if entry["op"] == "start":
            if name in open_:
                raise StormFailed(f"{name} started twice at once in one process")
            open_[name] = entry["at"]
        elif name in open_:
            start = open_.pop(name)
            runs[name[1]].append(Run(name[2], name[3], start, entry["at"]))
    return runs


def _by_group(runs: Iterable[Run]) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start):
        groups[run.group].append(run)
    return groups


def _check_exclusive(runs: Iterable[Run], what: str) -> None:
    for group, of in _by_group(runs).items():
        for before, after in itertools.pairwise(of):
            if after.start < before.end:
                early_ms = (before.end - after.start) * 1000
                raise StormFailed(f"{what} {group} ran twice at once for {early_ms:.1f} ms")


def _check_strict_order(lane: str, runs: list[Run]) -> None:
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for run in runs:
        first.setdefault(run.position, run.start)
        last[run.position] = max(last.get(run.position, 0.0), run.end)
    for position in sorted(first)[1:]:
        if first[position] < last[position - 1]:
            raise StormFailed(f"{lane}: job {position} started before job {position - 1} had ended")


def _check_start_order(lane: str, runs: list[Run]) -> None:
    first: dict[int, float] = {}
    for run in runs:
        first.setdefault(run.position, run.start)
    order = sorted(first, key=lambda position: first[position])
    if order != sorted(order):
        raise StormFailed(f"{lane}: jobs started first in the order {order}")


def _check_rate(times: list[float], options: LimitOptions) -> None:
    span_s = times[-1] - times[0]
    allowed = RATE + RATE * (span_s + MAX_CLAIM_DELAY_S) + 1
    worst, min_share = 0.0, 0.0
    for count, at in enumerate(times):
        due = (at - times[0]) * RATE
        worst = max(worst, count + 1 - due - min_share)
        min_share = min(min_share, count + 1 - due)
    print(f"  {len(times)} rated starts in {span_s:.1f} s, allowed {allowed:.0f}; "
          f"most beyond the rate in any span: {worst:.0f}")  # fmt: skip
    if len(times) > allowed:
        raise StormFailed(f"{len(times)} starts in {span_s:.1f} s are more than {allowed:.0f}")
    if worst > RATE + RATE * MAX_CLAIM_DELAY_S + 1:
        raise StormFailed(f"some span had {worst:.0f} starts beyond the rate")
    if span_s < options.rated_s / 2:
        raise StormFailed("the rate delayed nothing: the run proves nothing")


# --------------------------------------------------------------------------------------- the rig


class LimitRig:
    def __init__(self, options: LimitOptions, folder: Path, database: Database) -> None:
        self._options = options
        self._folder = folder
        self._database = database
        self._rng = random.Random(options.seed)
        self._workers: list[ForgeWorker] = []
        self._history = History(folder / "killer.jsonl")

    async def run(self) -> None:
        options = self._options
        await asyncio.to_thread(self._enqueue_jobs)
        try:
            with (self._folder / "workers.log").open("ab") as log:
                for _ in range(options.workers):
                    self._start_worker(log)
                await self._wait_until_up()
                for _ in range(options.kills):
                    await asyncio.sleep(self._rng.uniform(0.5, 1.5) * options.every_s)
                    self._kill_one()
                    self._start_worker(log)
                await self._wait_until_done()
        finally:
            for worker in self._workers:
                worker.kill()

    def _enqueue_jobs(self) -> None:
        """Enqueue everything before the workers start, through the tasks."""
        os.environ["STORM_URL"] = self._database.url
        os.environ["STORM_FOLDER"] = str(self._folder)
        command = [sys.executable, "-m", "rigs.storms.limits", *self._sizes()]
        subprocess.run(command, cwd=ROOT, check=True, timeout=300)

    def _sizes(self) -> list[str]:
        options = self._options
        numbers = (options.jobs, options.keys, options.lanes, options.depth, options.seed)
        return [*map(str, numbers), str(options.rated_s)]

    def _start_worker(self, log: Any) -> None:
        environment = {"STORM_URL": self._database.url, "STORM_FOLDER": str(self._folder)}
        command = worker_command(
            "rigs.storms.limited_jobs:forge",
            "keyed:40,rated:20,lined:40",
            lease_s=self._options.lease_s,
        )
        self._workers.append(ForgeWorker(command, environment, log))

    def _kill_one(self) -> None:
        up = pids(self._database)
        alive = [worker for worker in self._workers if worker.pid in up] or self._workers
        victim = self._rng.choice(alive)
        self._workers.remove(victim)
        self._history.write("kill", victim=victim.pid)
        victim.kill()

    async def _wait_until_up(self) -> None:
        end = time.monotonic() + 60
        while len(pids(self._database)) < self._options.workers:
            if time.monotonic() > end:
                raise StormFailed(f"the workers did not start:\n{self._log_tail()}")
            await asyncio.sleep(0.05)

    async def _wait_until_done(self) -> None:
        end = time.monotonic() + self._options.drain_s
        logged_at = 0.0
        while time.monotonic() < end:
            left = states(self._database)
            waiting = sum(left.values()) - left.get("done", 0)
            if left and waiting == 0:
                return
            if time.monotonic() - logged_at > 5:
                logged_at = time.monotonic()
                print(f"  {now():.0f}: {left}", flush=True)
            await asyncio.sleep(0.2)
        raise StormFailed(f"still unfinished: {states(self._database)}\n{self._log_tail()}")

    def _log_tail(self) -> str:
        return (self._folder / "workers.log").read_text(errors="replace")[-3_000:]


def fill(jobs: int, keys: int, lanes: int, depth: int, seed: int, rated_s: float) -> None:
    """Enqueue everything: one job of every lane, then the next ones."""
    from rigs.storms.limited_jobs import keyed, lined, rated

    rng = random.Random(seed)
    calls = [(f"key-{rng.randrange(keys)}", rng.uniform(0, 4)) for _ in range(jobs)]
    keyed.enqueue_many(calls)
    rated.enqueue_many([() for _ in range(int(RATE * (rated_s + 1)))])
    for position in range(depth):
        for number in range(lanes):
            order = "strict" if number % 2 else "serial"
            lane = f"{order}-{number}"
            failures = rng.choice((0, 0, 0, 0, 1, 2))
            lined.using(lane=lane, order=order).enqueue(lane, position, rng.uniform(0, 8), failures)


def _forge() -> Forge:
    from rigs.storms.limited_jobs import forge

    return forge


if __name__ == "__main__":
    fill(*(int(number) for number in sys.argv[1:6]), rated_s=float(sys.argv[6]))
    _forge().close()
