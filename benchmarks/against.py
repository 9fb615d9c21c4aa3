"""This tree against an earlier commit: `python -m benchmarks --against COMMIT`.

Both sides run in the same minutes on the same machine, in windows that alternate, because figures
of different runs differ by 30 %. The ratio of each pair of windows counts; a row passes when the
90 % interval of the median reaches 0.97. Wall time is judged, and processor time per job (caller or
worker, plus the server on Postgres), which a busy disk does not blur. A ratio above 1 means that
this tree is faster or cheaper. Drains are counted by handler calls: a retried job counts twice.

The earlier package is unpacked from git; the benchmark's own code is this tree's on both sides.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import postgres
from benchmarks.bench import OURS, Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, Target, paired
from benchmarks.measures import draining, postgres_drain
from benchmarks.measures.draining import Contender, Late
from benchmarks.processes import ROOT, Agent, AgentError
from benchmarks.run import Result, progress
from benchmarks.systems import OURS_POSTGRES
from benchmarks.systems.forge_loads import LOADS

MUST = 0.97
AIM = 1.0
AFTER = "this tree"
BEFORE = "before"
SIDES = (AFTER, BEFORE)
WARM_UP_JOBS = 100
# Jobs that are due at once must all be stored, and the worker up, before they are due.
LEAD_SECONDS = 2.0
LEAD_JOBS_PER_SECOND = 20_000
MAX_LEAD_S = 50.0


@dataclass(frozen=True, slots=True)
class Row:
    """One way to use the package. `verb` is what an agent is asked for, in windows of `jobs`.

    `load`: what the jobs of a drain are, if not no-op jobs.
    """

    name: str
    text: str
    system: str
    level: str
    verb: str
    jobs: int
    quick_jobs: int = 100
    load: str = ""


def _loaded(load: str, text: str, jobs: int, quick: int = 500) -> tuple[Row, Row]:
    """A drain of that load on both stores, with as many jobs as take a second or more."""
    return (
        Row(f"drain-{load}", f"SQLite: {text}", OURS, "default", "drain", jobs, quick, load),
        Row(
            f"postgres-drain-{load}",
            f"Postgres: {text}",
            OURS_POSTGRES,
            "postgres",
            "drain",
            jobs,
            quick,
            load,
        ),
    )


ROWS = {
    row.name: row
    for row in (
        Row("drain", "SQLite: drain", OURS, "default", "drain", 50_000, 500),
        Row("enqueue-normal", "SQLite: enqueue, NORMAL", OURS, "normal", "enqueue", 3_000),
        Row("enqueue-full", "SQLite: enqueue, FULL", OURS, "full", "enqueue", 500),
        Row("keyed", "SQLite: enqueue with a dedupe key", OURS, "normal", "enqueue_keyed", 2_000),
        Row("bulk", "SQLite: enqueue_many", OURS, "default", "enqueue_bulk", 20_000, 1_000),
        Row("postgres-drain", "Postgres: drain", OURS_POSTGRES, "postgres", "drain", 60_000, 500),
        Row("postgres-enqueue", "Postgres: aenqueue", OURS_POSTGRES, "postgres", "enqueue", 300),
        Row(
            "postgres-sync",
            "Postgres: enqueue from synchronous code",
            OURS_POSTGRES,
            "postgres",
            "enqueue_from_thread",
            300,
        ),
        Row(
            "postgres-keyed",
            "Postgres: enqueue with a dedupe key",
            OURS_POSTGRES,
            "postgres",
            "enqueue_keyed",
            300,
        ),
        Row(
            "postgres-bulk",
            "Postgres: aenqueue_many",
            OURS_POSTGRES,
            "postgres",
            "enqueue_bulk",
            5_000,
            1_000,
        ),
        *_loaded("keyed", "drain, dedupe keys", 50_000),
        *_loaded("failing", "drain, failing handlers", 30_000),
        *_loaded("limited", "drain, limit per key", 20_000, 1_200),
        *_loaded("due", "drain, all due at once", 100_000),
        *_loaded("steps", "drain, 20 durable steps each", 2_000, 50),
    )
}


def is_commit(name: str) -> bool:
    """Whether git knows a commit by that name."""
    command = ["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


def unpacked(commit: str, home: Path) -> Path:
    """The folder that holds the package as it was at `commit`."""
    packed = subprocess.run(
        ["git", "archive", "--format=tar", commit, "src"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    folder = home / "before"
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def compare(bench: Bench, commit: str, names: Sequence[str]) -> list[Result]:
    """Every row, one after the other; a row that breaks does not hide the others."""
    sources = {AFTER: ROOT / "src", BEFORE: unpacked(commit, bench.home)}
    return [_result(bench, ROWS[name], sources) for name in names]


def _result(bench: Bench, row: Row, sources: dict[str, Path]) -> Result:
    result = Result(row.name, f"{row.text}: {AFTER} to the earlier commit")
    started = time.monotonic()
    try:
        measured = _drains if row.verb == "drain" else _windows
        for figures in measured(bench, row, sources, result.problems):
            result.series.add(figures)
    except (AgentError, TimeoutError, OSError) as failure:
        result.failures.append(f"{row.name}: {failure}")
        progress(f"{row.name} failed: {failure}")
    result.outcomes = [_judged(row, result.series, what) for what in ("speed", "cpu")]
    result.seconds = time.monotonic() - started
    return result


def _judged(row: Row, series: Series, what: str) -> Outcome:
    text = f"{row.text}, {'jobs/s' if what == 'speed' else 'processor time'}"
    target = Target(f"against-{row.name}-{what}", text, MUST, AIM, "×")
    name, unit = ("jobs/s", "/s") if what == "speed" else ("cpu", " µs/job")
    medians = [series.median(side, name) for side in SIDES]
    note = " to ".join(f"{value:,.0f}{unit}" for value in medians if value is not None)
    return paired(target, series.of(AFTER, f"{what} ratio"), note)


def _pairs(bench: Bench) -> int:
    return 2 if bench.size.quick else max(15, bench.size.rounds)


def _compared(row: Row, pair: int, speed: dict[str, float], cpu: dict[str, float]) -> list[Figure]:
    """The figures of one pair of windows. ``cpu``: microseconds per job."""
    progress(f"{row.name}: pair {pair + 1}: {speed[AFTER] / speed[BEFORE]:.2f} ×")
    return [
        *(Figure(side, "jobs/s", speed[side], "/s") for side in SIDES),
        *(Figure(side, "cpu", cpu[side], "µs/job") for side in SIDES),
        Figure(AFTER, "speed ratio", speed[AFTER] / speed[BEFORE], "×"),
        Figure(AFTER, "cpu ratio", cpu[BEFORE] / cpu[AFTER], "×"),
    ]


def contender(row: Row, jobs: int, side: str, source: Path) -> Contender:
    """One side of a row that drains."""
    load = LOADS.get(row.load)
    lead = {"lead": LEAD_SECONDS + jobs / LEAD_JOBS_PER_SECOND} if row.load == "due" else {}
    return Contender(side, row.system, row.level, jobs, True, lead, source=source, load=load)


def drained(bench: Bench, one: Contender, problems: list[str]) -> list[Figure]:
    """The figures of one drain. A worker that was up too late gets a second, longer lead."""
    drain = postgres_drain.drain_once if one.system == OURS_POSTGRES else draining.drain_once
    while True:
        try:
            return drain(bench, one, problems)
        except Late as late:
            lead = 2 * one.seed["lead"]
            if lead > MAX_LEAD_S:
                raise AgentError(str(late)) from late
            progress(f"{late}; once more with a lead of {lead:.0f} s")
            one = replace(one, seed={"lead": lead})


def _drains(
    bench: Bench, row: Row, sources: dict[str, Path], problems: list[str]
) -> Iterator[list[Figure]]:
    """Each pair drains two freshly seeded stores."""
    jobs = bench.size.jobs(row.jobs, row.quick_jobs)
    for pair in range(_pairs(bench)):
        speed, cpu = dict[str, float](), dict[str, float]()
        for side in in_turn(list(SIDES), pair):
            found = drained(bench, contender(row, jobs, side, sources[side]), problems)
            told = {one.name: one.value for one in found}
            speed[side] = told["jobs/s"]
            cpu[side] = told["cpu"] + told.get("server cpu", 0.0)
        yield _compared(row, pair, speed, cpu)


def _windows(
    bench: Bench, row: Row, sources: dict[str, Path], problems: list[str]
) -> Iterator[list[Figure]]:
    """Two processes stay open and take turns."""
    jobs = bench.size.jobs(row.jobs, row.quick_jobs)
    with ExitStack() as stack:
        sides = {side: stack.enter_context(_opened(bench, row, sources[side])) for side in SIDES}
        for agent, _ in sides.values():
            agent.ask(row.verb, jobs=max(WARM_UP_JOBS, row.quick_jobs))
        for pair in range(_pairs(bench)):
            speed, cpu = dict[str, float](), dict[str, float]()
            for side in in_turn(list(SIDES), pair):
                agent, meter = sides[side]
                if meter is not None:
                    meter.begin()
                told = agent.ask(row.verb, jobs=jobs)
                server = meter.seconds() if meter is not None else 0.0
                speed[side] = told["jobs"] / told["seconds"]
                cpu[side] = (told["cpu"] + server) / told["jobs"] * 1e6
            yield _compared(row, pair, speed, cpu)
        expected = max(WARM_UP_JOBS, row.quick_jobs) + jobs * _pairs(bench)
        for side, (agent, _) in sides.items():
            waiting = agent.ask("rows")["waiting"]
            if waiting != expected:
                problems.append(f"{side}: {waiting} rows after {expected} acknowledged enqueues")


@contextmanager
def _opened(bench: Bench, row: Row, source: Path) -> Iterator[tuple[Agent, postgres.Meter | None]]:
    on_server = row.system == OURS_POSTGRES
    with (
        bench.database() if on_server else bench.store() as store,
        bench.agent(row.system, store, row.level, source=source) as agent,
    ):
        yield agent, postgres.Meter(store) if on_server else None
