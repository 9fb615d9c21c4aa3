"""The checks of the kill storm. Pure functions: histories and rows in, findings and figures out."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Entry = dict[str, Any]
RECOVERY_S = 5.0


@dataclass(frozen=True)
class Row:
    """A job as the final database has it."""

    key: int
    name: str
    status: str
    attempts: int
    owner: int | None


@dataclass(frozen=True)
class Evidence:
    """The input of the checks. ``done_counted``: successes by the database's own counters."""

    entries: list[Entry]
    rows: list[Row]
    done_counted: int
    lease_s: float


@dataclass
class CheckReport:
    """Findings by check; the storm passed if every list is empty."""

    findings: dict[str, list[str]] = field(default_factory=dict)
    figures: dict[str, object] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not any(self.findings.values())


@dataclass
class Attempt:
    """One run of a job, as its handler recorded it."""

    name: str
    job: str
    pid: int
    parent: int
    start: float
    epoch: int | None
    end: float | None = None


def check(evidence: Evidence) -> CheckReport:
    """Run every check on the evidence of one storm."""
    attempts = _attempts(evidence.entries)
    kills = _kills(evidence.entries)
    report = CheckReport()
    for name, check in {
        "nothing was done": _idle(evidence, attempts),
        "acknowledged jobs lost": _lost(evidence),
        "unexpected jobs": _unexpected(evidence),
        "batches stored in part": _partial_batches(evidence),
        "jobs not done in the end": _unfinished(evidence),
        "double finishes": _double_finishes(evidence, attempts),
        "runs without an explanation": _unexplained(attempts, kills),
        "epochs going backwards": _decreasing_epochs(attempts),
        "slow recoveries": _slow_recoveries(
            attempts, _kills(evidence.entries, blackout=False), evidence
        ),
    }.items():
        report.findings[name] = list(check)
    report.figures = _figures(evidence, attempts, kills)
    return report


def _attempts(entries: Iterable[Entry]) -> dict[str, list[Attempt]]:
    runs: dict[str, list[Attempt]] = defaultdict(list)
    open_runs: dict[tuple[str, int], Attempt] = {}
    for entry in entries:
        if entry["op"] == "start":
            attempt = Attempt(
                entry["name"], entry["job"], entry["pid"], entry["parent"], entry["at"],
                entry["epoch"],
            )  # fmt: skip
            runs[entry["name"]].append(attempt)
            open_runs[entry["name"], entry["pid"]] = attempt
        elif entry["op"] == "end":
            open_runs[entry["name"], entry["pid"]].end = entry["at"]
    return runs


def _kills(entries: Iterable[Entry], blackout: bool | None = None) -> dict[int, float]:
    """When each process was killed: the time right before the signal.

    After a blackout no worker is left to start a job, so no recovery time is checked.
    """
    return {
        entry["victim"]: entry["at"]
        for entry in entries
        if entry["op"] == "kill" and blackout in (None, entry["blackout"])
    }


def _killed_at(attempt: Attempt, kills: dict[int, float]) -> float | None:
    # A child process ends with the worker that started it.
    return kills.get(attempt.pid, kills.get(attempt.parent))


def _named(entries: Iterable[Entry], op: str) -> Iterator[tuple[str, Entry]]:
    for entry in entries:
        if entry["op"] == op:
            for name in entry["names"]:
                yield name, entry


def _idle(evidence: Evidence, attempts: dict[str, list[Attempt]]) -> Iterator[str]:
    """A storm without jobs or runs would pass every other check, and proves nothing."""
    if not evidence.rows:
        yield "no job was stored"
    if not any(run.end is not None for runs in attempts.values() for run in runs):
        yield "no run of a job ended"


def _lost(evidence: Evidence) -> Iterator[str]:
    stored = {row.name for row in evidence.rows}
    for name, entry in _named(evidence.entries, "ok"):
        if name not in stored:
            yield f"{name}, acknowledged at {entry['at']:.3f}"


def _unexpected(evidence: Evidence) -> Iterator[str]:
    begun = {name for name, _ in _named(evidence.entries, "invoke")}
    for name, copies in Counter(row.name for row in evidence.rows).items():
        if name not in begun:
            yield f"{name} was never enqueued"
        elif copies > 1:
            yield f"{name} is stored {copies} times"


def _partial_batches(evidence: Evidence) -> Iterator[str]:
    stored = {row.name for row in evidence.rows}
    for entry in evidence.entries:
        if entry["op"] == "invoke":
            there = sum(name in stored for name in entry["names"])
            if there not in (0, len(entry["names"])):
                yield f"{entry['names'][0]}…: {there} of {len(entry['names'])}"


def _unfinished(evidence: Evidence) -> Iterator[str]:
    for row in evidence.rows:
        if row.status != "done":
            owner = "" if row.owner is None else f", owned by {row.owner}"
            yield f"{row.name} is {row.status} after {row.attempts} attempts{owner}"


def _double_finishes(evidence: Evidence, attempts: dict[str, list[Attempt]]) -> Iterator[str]:
    done = sum(row.status == "done" for row in evidence.rows)
    if evidence.done_counted != done:
        yield f"the database counted {evidence.done_counted} successes of {done} jobs"
    for row in evidence.rows:
        runs = attempts.get(row.name, [])
        if row.status == "done" and not any(run.end is not None for run in runs):
            yield f"{row.name} is done, but no run of it ever ended"


def _unexplained(attempts: dict[str, list[Attempt]], kills: dict[int, float]) -> Iterator[str]:
    for name, runs in attempts.items():
        for earlier, later in itertools.pairwise(runs):
            killed_at = _killed_at(earlier, kills)
            if killed_at is None:
                yield f"{name} ran again after pid {earlier.pid}, which was not killed"
            elif not earlier.start <= killed_at + 1 or later.start < killed_at:
                yield f"{name} ran again {killed_at - later.start:.3f} s before the kill"


def _decreasing_epochs(attempts: dict[str, list[Attempt]]) -> Iterator[str]:
    for name, runs in attempts.items():
        epochs = [run.epoch for run in runs if run.epoch is not None]
        if any(later <= earlier for earlier, later in itertools.pairwise(epochs)):
            yield f"{name}: {epochs}"


def _recoveries(
    attempts: dict[str, list[Attempt]], kills: dict[int, float]
) -> Iterator[tuple[str, float]]:
    """How long jobs that were interrupted by a kill waited for their next start."""
    for name, runs in attempts.items():
        for earlier, later in itertools.pairwise(runs):
            killed_at = _killed_at(earlier, kills)
            if killed_at is not None and earlier.end is None:
                yield name, later.start - killed_at


def _slow_recoveries(
    attempts: dict[str, list[Attempt]], kills: dict[int, float], evidence: Evidence
) -> Iterator[str]:
    for name, waited_s in _recoveries(attempts, kills):
        if waited_s > evidence.lease_s + RECOVERY_S:
            yield f"{name} started again {waited_s:.1f} s after the kill"


def _figures(
    evidence: Evidence, attempts: dict[str, list[Attempt]], kills: dict[int, float]
) -> dict[str, object]:
    acknowledged = {name for name, _ in _named(evidence.entries, "ok")}
    begun = {name for name, _ in _named(evidence.entries, "invoke")}
    waits = sorted(waited for _, waited in _recoveries(attempts, kills))
    return {
        "jobs stored": len(evidence.rows),
        "acknowledged": len(acknowledged),
        "begun, never answered": len(begun - acknowledged),
        "runs": sum(map(len, attempts.values())),
        "repeated runs": sum(len(runs) - 1 for runs in attempts.values()),
        "kills": len(kills),
        "interrupted runs": len(waits),
        "slowest recovery": f"{waits[-1]:.2f} s" if waits else "–",
        "refused, tried again": sum(entry["op"] == "refused" for entry in evidence.entries),
        "effect unknown": sum(entry["op"] == "unknown" for entry in evidence.entries),
        "forks of producers": sum(entry["op"] == "forked" for entry in evidence.entries),
        "interrupted calls": sum(entry["op"] == "interrupted" for entry in evidence.entries),
    }
