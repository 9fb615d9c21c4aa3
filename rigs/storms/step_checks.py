"""The checks of the steps storm. Pure functions: evidence in, findings and figures out."""

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rigs.storms.checks import CheckReport, Entry, Row
from rigs.storms.step_workload import INSERTED, REMOVED, VERSIONS

# A step: its workflow, its number, and what its version calls it if not as the others do.
StepKey: TypeAlias = tuple[str, int, str]
# When the processes with a pid were killed: pids are used again.
Kills: TypeAlias = Mapping[int, Sequence[float]]
# How long a process may work on after its kill was noted, on a busy machine.
_LAST_WORK_S = 1.0


@dataclass(frozen=True)
class StepEvidence:
    """The input of the checks. ``results``: of jobs that are done, by name. ``payments``: how often
    each effect of a transactional step is in the table. ``steps``: of each workflow."""

    entries: list[Entry]
    rows: list[Row]
    results: dict[str, object]
    expected: dict[str, object]
    payments: Counter[tuple[str, int]]
    steps: int


def check(evidence: StepEvidence) -> CheckReport:
    """Run every check on the evidence of one storm."""
    effects = _effects(evidence)
    kills: dict[int, list[float]] = {}
    for one in evidence.entries:
        if one["op"] == "kill":
            kills.setdefault(one["victim"], []).append(one["at"])
    report = CheckReport()
    for name, found in {
        "nothing was done": _idle(evidence, kills),
        "acknowledged jobs lost": _lost(evidence),
        "jobs stored twice": _doubled(evidence),
        "jobs not done in the end": _unfinished(evidence),
        "wrong results": _wrong(evidence),
        "effects missing": _missing(evidence, effects),
        "effects repeated, no kill": _unexplained(evidence, effects, kills),
        "effects repeated with tx=": _repeated_in_tx(evidence),
    }.items():
        report.findings[name] = list(found)
    repeated = sum(len(made) - 1 for made in effects.values())
    report.figures.update(
        {
            "workflows": len(evidence.rows),
            "effects": sum(map(len, effects.values())) + evidence.payments.total(),
            "of these with tx=": evidence.payments.total(),
            "repeated by kills": repeated,
            "kills": sum(map(len, kills.values())),
            "runs again after a crash": sum(row.attempts > 1 for row in evidence.rows),
            "calls refused": sum(one["op"] == "refused" for one in evidence.entries),
            "begun and ended by two versions": len(_mixed(evidence)),
        }
    )
    return report


def _key(entry: Entry) -> StepKey:
    return entry["name"], entry["step"], entry["called"]


def _effects(evidence: StepEvidence) -> dict[StepKey, list[Entry]]:
    effects: dict[StepKey, list[Entry]] = {}
    for one in evidence.entries:
        if one["op"] == "effect":
            effects.setdefault(_key(one), []).append(one)
    return effects


def _mixed(evidence: StepEvidence) -> set[str]:
    """The workflows with steps that differ between the versions, and that ran under both."""
    versions: dict[str, set[str]] = {}
    differ: set[str] = set()
    for one in evidence.entries:
        if one["op"] in ("passed", "ended"):
            versions.setdefault(one["name"], set()).add(one["version"])
        if one["op"] == "ended":
            differ.add(one["name"])
    return {name for name in differ if len(versions[name]) == len(VERSIONS)}


def _idle(evidence: StepEvidence, kills: Kills) -> Iterator[str]:
    if not evidence.rows:
        yield "no job was stored"
    if not any(one["op"] == "passed" for one in evidence.entries):
        yield "no step was passed"
    if not evidence.payments:
        yield "no step with tx= was committed"
    if not kills:
        yield "no process was killed"
    if not _mixed(evidence):
        yield "no workflow ran under both versions"


def _lost(evidence: StepEvidence) -> Iterator[str]:
    stored = {row.name for row in evidence.rows}
    for one in evidence.entries:
        if one["op"] == "ok":
            yield from (name for name in one["names"] if name not in stored)


def _doubled(evidence: StepEvidence) -> Iterator[str]:
    for name, copies in Counter(row.name for row in evidence.rows).items():
        if copies > 1:
            yield f"{name} is stored {copies} times"


def _unfinished(evidence: StepEvidence) -> Iterator[str]:
    for row in evidence.rows:
        if row.status != "done":
            yield f"{row.name} is {row.status} after {row.attempts} attempts"


def _wrong(evidence: StepEvidence) -> Iterator[str]:
    for name, result in evidence.results.items():
        if result != evidence.expected[name]:
            yield f"{name}: {result}"


def _missing(evidence: StepEvidence, effects: dict[StepKey, list[Entry]]) -> Iterator[str]:
    made = {(name, step) for name, step, _ in effects}
    ended = {one["name"]: one["version"] for one in evidence.entries if one["op"] == "ended"}
    for row in evidence.rows:
        wanted = set(range(evidence.steps))
        if ended.get(row.name) == VERSIONS[1]:
            wanted = wanted - {REMOVED} | {INSERTED}
        for step in sorted(wanted):
            if (row.name, step) not in made and not evidence.payments[row.name, step]:
                yield f"step {step} of {row.name}"


def _unexplained(
    evidence: StepEvidence, effects: dict[StepKey, list[Entry]], kills: Kills
) -> Iterator[str]:
    """An effect may be repeated only if its step was open when the process was killed."""
    passed: dict[StepKey, float] = {}
    for one in evidence.entries:
        if one["op"] == "passed":
            passed.setdefault(_key(one), one["at"])
    for key, made in effects.items():
        what = f"step {key[1]} of {key[0]}"
        for earlier, later in itertools.pairwise(made):
            killed_at = _killed_at(earlier, kills)
            if killed_at is None:
                yield f"{what}: pid {earlier['pid']} was not killed"
            elif later["at"] < killed_at:
                yield f"{what}: again {killed_at - later['at']:.3f} s before the kill"
            if passed.get(key, later["at"]) < later["at"]:
                yield f"{what}: again after its value had been stored"


def _killed_at(effect: Entry, kills: Kills) -> float | None:
    """When the process of this effect was killed, or its parent; None if neither was."""
    for pid in (effect["pid"], effect["parent"]):
        times = kills.get(pid, ())
        after = bisect_left(times, effect["at"] - _LAST_WORK_S)
        if after < len(times):
            return times[after]
    return None


def _repeated_in_tx(evidence: StepEvidence) -> Iterator[str]:
    for (name, step), count in evidence.payments.items():
        if count != 1:
            yield f"step {step} of {name}: {count} times"
