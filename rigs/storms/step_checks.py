"""The checks of the steps storm. Pure functions: evidence in, findings and figures out."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from rigs.storms.checks import CheckReport, Entry, Row


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
    kills = {one["victim"]: one["at"] for one in evidence.entries if one["op"] == "kill"}
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
            "kills": len(kills),
            "runs again after a crash": sum(row.attempts > 1 for row in evidence.rows),
            "calls refused": sum(one["op"] == "refused" for one in evidence.entries),
        }
    )
    return report


def _effects(evidence: StepEvidence) -> dict[tuple[str, int], list[Entry]]:
    effects: dict[tuple[str, int], list[Entry]] = {}
    for one in evidence.entries:
        if one["op"] == "effect":
            effects.setdefault((one["name"], one["step"]), []).append(one)
    return effects


def _idle(evidence: StepEvidence, kills: dict[int, float]) -> Iterator[str]:
    if not evidence.rows:
        yield "no job was stored"
    if not any(one["op"] == "passed" for one in evidence.entries):
        yield "no step was passed"
    if not evidence.payments:
        yield "no step with tx= was committed"
    if not kills:
        yield "no process was killed"


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


def _missing(evidence: StepEvidence, effects: dict[tuple[str, int], list[Entry]]) -> Iterator[str]:
    for row in evidence.rows:
        for step in range(evidence.steps):
            if (row.name, step) not in effects and not evidence.payments[row.name, step]:
                yield f"step {step} of {row.name}"


def _unexplained(
    evidence: StepEvidence, effects: dict[tuple[str, int], list[Entry]], kills: dict[int, float]
) -> Iterator[str]:
    """An effect may be repeated only if its step was open when the process was killed."""
    passed: dict[tuple[str, int], float] = {}
    for one in evidence.entries:
        if one["op"] == "passed":
            passed.setdefault((one["name"], one["step"]), one["at"])
    for (name, step), made in effects.items():
        for earlier, later in itertools.pairwise(made):
            killed_at = kills.get(earlier["pid"], kills.get(earlier["parent"]))
            if killed_at is None:
                yield f"step {step} of {name}: pid {earlier['pid']} was not killed"
            elif later["at"] < killed_at:
                early_s = killed_at - later["at"]
                yield f"step {step} of {name}: again {early_s:.3f} s before the kill"
            if passed.get((name, step), later["at"]) < later["at"]:
                yield f"step {step} of {name}: again after its value had been stored"


def _repeated_in_tx(evidence: StepEvidence) -> Iterator[str]:
    for (name, step), count in evidence.payments.items():
        if count != 1:
            yield f"step {step} of {name}: {count} times"
