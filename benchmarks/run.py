"""Runs the chosen measures round by round and collects what they say."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.bench import OURS, Bench
from benchmarks.figures import Outcome, Series
from benchmarks.measures import MEASURES
from benchmarks.processes import AgentError

AUDITED = (
    (OURS, "full", {}),
    (OURS, "normal", {}),
    ("huey", "full", {"threads": 1}),
    ("litequeue", "normal", {}),
    ("persist-queue", "normal", {}),
    ("persist-queue", "full", {}),
)
AUDITED_JOBS = 100


@dataclass(slots=True)
class Result:
    """Everything one measure produced. `failures` are rounds that broke, `problems` wrong rows."""

    name: str
    title: str
    series: Series = field(default_factory=Series)
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    problems: list[str] = field(default_factory=list[str])
    failures: list[str] = field(default_factory=list[str])
    seconds: float = 0.0


def run(bench: Bench, names: Sequence[str]) -> list[Result]:
    """Measure by measure; a measure that breaks is reported and does not stop the others."""
    return [run_measure(bench, name) for name in names]


def run_measure(bench: Bench, name: str) -> Result:
    measure = MEASURES[name]()
    result = Result(measure.name, measure.title)
    started = time.monotonic()
    if attempt(result, f"{name}: setup", lambda: measure.setup(bench)):
        for number in range(bench.size.rounds):
            progress(f"{name}: round {number + 1} of {bench.size.rounds}")
            attempt(
                result,
                f"{name}: round {number + 1}",
                lambda number=number: result.series.add(measure.round(bench, number)),
            )
    attempt(result, f"{name}: verify", lambda: result.problems.extend(measure.verify(bench)))
    result.outcomes = measure.judge(result.series)
    result.seconds = time.monotonic() - started
    return result


def attempt(result: Result, what: str, action: Callable[[], None]) -> bool:
    try:
        action()
    except (AgentError, TimeoutError, OSError, ValueError) as failure:
        result.failures.append(f"{what}: {failure}")
        progress(f"{what} failed: {failure}")
        return False
    return True


def audit(bench: Bench) -> list[str]:
    """What each system's commits are really made with, from an untimed run of a few jobs."""
    lines = list[str]()
    for system, synchronous, options in AUDITED:
        if not bench.has(system):
            continue
        label = f"{system} {synchronous.upper()}"
        progress(f"audit: {label}")
        try:
            lines.append(f"{label}: {audit_one(bench, system, synchronous, options)}")
        except (AgentError, TimeoutError, OSError) as failure:
            lines.append(f"{label}: audit failed: {failure}")
    return lines


def audit_one(bench: Bench, system: str, synchronous: str, options: dict[str, int]) -> str:
    with (
        bench.store() as store,
        bench.agent(system, store, synchronous, flags=("--audit",)) as agent,
    ):
        start = agent.ask("commits")["commits"]
        agent.ask("enqueue", jobs=AUDITED_JOBS)
        enqueued = agent.ask("commits")["commits"]
        agent.send("drain", jobs=AUDITED_JOBS, **options)
        agent.event("up")
        agent.answer()
        told = agent.ask("commits")
    journal = "/".join(told["journal"]) or "?"
    return (
        f"{AUDITED_JOBS} enqueues = {difference(enqueued, start)} commits,"
        f" their drain = {difference(told['commits'], enqueued)}; journal {journal}"
    )


def difference(after: dict[str, int], before: dict[str, int]) -> str:
    parts = [
        f"{count - before.get(level, 0)} {level}"
        for level, count in sorted(after.items())
        if count != before.get(level, 0)
    ]
    return " + ".join(parts) or "0"


def progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
