"""How one contender empties a seeded queue: shared by the measures drain, def and await.

A producer process seeds the store and leaves; the store is settled; a worker process opens it
and says "up", which starts the clock. Peers are counted by their own loop (Huey when the last
handler was called, the others when the last row was acknowledged). Ours is watched from outside
by the parent until the store holds no unfinished job, so its clock stops at the last committed
finish (which at FULL is on the disk before anybody can see it).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.bench import OURS, Bench, prepare_database
from benchmarks.figures import Figure
from benchmarks.processes import Agent
from benchmarks.systems import forge_rows
from benchmarks.systems.forge_loads import Load, Rows

DRAIN_SECONDS = 60.0


class Late(RuntimeError):
    """The jobs were due before the worker was up: a longer lead is needed."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One system in one setting. `keeps`: finished rows are still there at the end.

    `source`: the folder with the package to measure, if not the installed one. `load`: what the
    jobs are, if not no-op jobs; only ours has loads.
    """

    label: str
    system: str
    synchronous: str
    jobs: int
    keeps: bool
    seed: dict[str, Any] = field(default_factory=dict[str, Any])
    drain: dict[str, Any] = field(default_factory=dict[str, Any])
    environment: dict[str, str] = field(default_factory=dict[str, str])
    source: Path | None = None
    load: Load | None = None


def peers_full(jobs: int) -> list[Contender]:
    """Huey at the two thread counts that bracket its best, and persist-queue with fsync."""
    jobs = jobs * 3 // 5  # a commit with fsync is slow; fewer jobs keep the rounds short
    return [
        Contender("huey, 1 thread", "huey", "full", jobs, False, {}, {"threads": 1}),
        Contender("huey, 4 threads", "huey", "full", jobs, False, {}, {"threads": 4}),
        Contender("persist-queue FULL", "persist-queue", "full", jobs, True),
    ]


def peers_normal(jobs: int) -> list[Contender]:
    """The two tables with a loop, once keeping finished rows as we do, once throwing them away."""
    pruned, cleared = {"prune_every": 100}, {"clear_every": 1_000}
    return [
        Contender("litequeue", "litequeue", "normal", jobs, True),
        Contender("litequeue, pruned", "litequeue", "normal", jobs, False, {}, pruned),
        Contender("persist-queue", "persist-queue", "normal", jobs, True),
        Contender("persist-queue, cleared", "persist-queue", "normal", jobs, False, {}, cleared),
    ]


def ours(label: str, synchronous: str, jobs: int, kind: str) -> Contender:
    return Contender(label, OURS, synchronous, jobs, True, {"kind": kind})


def drain_once(bench: Bench, contender: Contender, problems: list[str]) -> list[Figure]:
    """Seed, settle, drain, check the rows; jobs per second and processor time per job."""
    with bench.store() as store:
        with bench.agent(
            contender.system, store, contender.synchronous, source=contender.source
        ) as producer:
            seeded = seed(producer, contender, DRAIN_SECONDS)
        if contender.load is not None:
            check_load(contender, "seeded", forge_rows.state(store), problems)
        prepare_database(store)
        with bench.agent(
            contender.system,
            store,
            contender.synchronous,
            environment=contender.environment,
            source=contender.source,
        ) as worker:
            up = begin(worker, contender, seeded, DRAIN_SECONDS)
            if contender.system == OURS:
                ended = forge_rows.await_empty(store, DRAIN_SECONDS)
                done = worker.answer(DRAIN_SECONDS)
                done["seconds"] = ended - up["at"]
            else:
                done = worker.answer(DRAIN_SECONDS)
                note_durability(bench, contender, worker.ask("durability"))
        if contender.system == OURS:
            check_rows(contender, forge_rows.counts(store), problems)
            check_load(contender, "ended", forge_rows.state(store), problems)
            problems += [f"{contender.label}: {wrong}" for wrong in forge_rows.discord(store)]
        else:
            with bench.agent(contender.system, store, contender.synchronous) as reader:
                check_rows(contender, reader.ask("rows"), problems)
    return [
        Figure(contender.label, "jobs/s", done["jobs"] / done["seconds"], "/s"),
        Figure(contender.label, "cpu", done["cpu"] / done["jobs"] * 1e6, "µs/job"),
    ]


def seed(producer: Agent, contender: Contender, seconds: float) -> dict[str, Any]:
    """Store the jobs; what the worker has to know about them."""
    load = {} if contender.load is None else {"load": contender.load.name}
    told = producer.ask("seed", seconds, jobs=contender.jobs, **load, **contender.seed)
    if "due" in told and told["due"] < time.time():
        raise Late(f"{contender.label}: the jobs were due before the last was stored")
    return {**load, **told}


def begin(
    worker: Agent, contender: Contender, seeded: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Start the drain; what the worker tells when it is up."""
    jobs = contender.jobs
    calls = jobs if contender.load is None else contender.load.calls(jobs)
    worker.send("drain", jobs=calls, **seeded, **contender.drain)
    up = worker.event("up", seconds)
    if up.get("late"):
        raise Late(f"{contender.label}: the jobs were due before the worker was up")
    return up


def note_durability(bench: Bench, contender: Contender, level: dict[str, Any]) -> None:
    bench.say(
        f"{contender.label}: synchronous {level['synchronous']}, journal {level['journal']}"
        f" (read back), finished rows {'kept' if contender.keeps else 'not kept'}"
    )


def check_rows(contender: Contender, rows: dict[str, Any], problems: list[str]) -> None:
    if rows["waiting"] != 0:
        problems.append(f"{contender.label}: {rows['waiting']} jobs left unfinished")
    if contender.keeps and rows["finished"] != contender.jobs:
        problems.append(
            f"{contender.label}: {rows['finished']} finished rows for {contender.jobs} jobs"
        )


def check_load(contender: Contender, when: str, rows: Rows, problems: list[str]) -> None:
    """`when`: seeded or ended. Jobs by state, their attempts and the dedupe keys that are taken."""
    load = Load() if contender.load is None else contender.load
    expected = load.seeded(contender.jobs) if when == "seeded" else load.ended(contender.jobs)
    wanted = {name: number for name, number in expected.items() if number}
    if rows != wanted:
        problems.append(f"{contender.label}: {when} rows are {rows} instead of {wanted}")
