"""Runs the chosen measures round by round and collects what they say."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.bench import OURS, Bench
from benchmarks.figures import Outcome, Series
from benchmarks.measures import MEASURES
from benchmarks.processes import AgentError

AUDITED_JOBS = 100


@dataclass(frozen=True, slots=True)
class Audited:
    """A system in one setting, and the level that each of its commits is said to have."""

    system: str
    synchronous: str
    enqueue: str
    drain: str
    options: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def label(self) -> str:
        level = self.synchronous
        return f"{self.system}, {level if level == 'default' else level.upper()}"


AUDITED = (
    Audited(OURS, "full", "FULL", "FULL"),
    Audited(OURS, "default", "FULL", "NORMAL"),
    Audited(OURS, "normal", "NORMAL", "NORMAL"),
    Audited("huey", "full", "FULL", "FULL", {"threads": 1}),
    Audited("litequeue", "normal", "NORMAL", "NORMAL"),
    Audited("persist-queue", "normal", "NORMAL", "NORMAL"),
    Audited("persist-queue", "full", "FULL", "FULL"),
)


@dataclass(frozen=True, slots=True)
class Durability:
    """What an audit found; `as_said` is False when a commit was made at another level."""

    system: str
    synchronous: str
    text: str
    as_said: bool


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


def run(bench: Bench, names: Sequence[str], durability: Sequence[Durability]) -> list[Result]:
    """Measure by measure; a measure that breaks is reported and does not stop the others."""
    results = [run_measure(bench, name) for name in names]
    other = {one.synchronous for one in durability if one.system == OURS and not one.as_said}
    for result in results:
        result.outcomes = [
            replace(outcome, unequal=outcome.target.level in other) for outcome in result.outcomes
        ]
    return results


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


def audit(bench: Bench) -> list[Durability]:
    """What each system's commits are really made with, from an untimed run of a few jobs."""
    found = list[Durability]()
    for one in AUDITED:
        if not bench.has(one.system):
            continue
        progress(f"audit: {one.label}")
        try:
            found.append(audit_one(bench, one))
        except (AgentError, TimeoutError, OSError) as failure:
            text = f"{one.label}: audit failed: {failure}"
            found.append(Durability(one.system, one.synchronous, text, as_said=False))
    return found


def audit_one(bench: Bench, one: Audited) -> Durability:
    with (
        bench.store() as store,
        bench.agent(one.system, store, one.synchronous, flags=("--audit",)) as agent,
    ):
        agent.ask("enqueue", jobs=1)  # opens and migrates
        waiting = 1
        if one.system == OURS:
            # The first worker of a store publishes its tasks, in a commit with fsync.
            agent.send("drain", jobs=1, **one.options)
            agent.event("up")
            agent.answer()
            waiting = 0
        start = agent.ask("commits")["commits"]
        agent.ask("enqueue", jobs=AUDITED_JOBS)
        enqueued = agent.ask("commits")["commits"]
        agent.send("drain", jobs=AUDITED_JOBS + waiting, **one.options)
        agent.event("up")
        agent.answer()
        told = agent.ask("commits")
    put, drained = grown(enqueued, start), grown(told["commits"], enqueued)
    # A worker notes its name and version when it starts: one setting, as durable as all of them.
    jobs = {level for level, times in drained.items() if (level, times) != ("FULL", 1)}
    as_said = set(put) == {one.enqueue} and (jobs or set(drained)) == {one.drain}
    verdict = "as said" if as_said else f"NOT AS SAID ({one.enqueue} and {one.drain})"
    return Durability(
        one.system,
        one.synchronous,
        f"{one.label}: {AUDITED_JOBS} enqueues = {spelled(put)} commits, their drain ="
        f" {spelled(drained)}; journal {'/'.join(told['journal']) or '?'}; {verdict}",
        as_said,
    )


def grown(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """Commits by level since `before`."""
    since = {level: count - before.get(level, 0) for level, count in sorted(after.items())}
    return {level: count for level, count in since.items() if count}


def spelled(commits: dict[str, int]) -> str:
    return " + ".join(f"{count} {level}" for level, count in commits.items()) or "0"


def progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
