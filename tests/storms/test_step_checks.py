"""Each check of the steps storm finds its violation in made-up evidence."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rigs.storms.checks import Row
from rigs.storms.step_checks import StepEvidence, check
from rigs.storms.step_workload import INSERTED

Entry = dict[str, Any]


def entry(op: str, at: float, pid: int = 1, **fields: Any) -> Entry:
    return {"op": op, "at": at, "pid": pid, "parent": 1, "called": "", "version": "old", **fields}


def good() -> StepEvidence:
    """Two workflows of two steps; the second step of *a* is open when its worker is killed, and it
    ends under the other version. *t* has its effects in the table."""
    entries = [
        entry("ok", 0.0, names=["a"], ids=["id-a"]),
        entry("ok", 0.0, names=["t"], ids=["id-t"]),
        entry("effect", 1.0, pid=10, name="a", step=0),
        entry("passed", 1.1, pid=10, name="a", step=0),
        entry("effect", 1.2, pid=10, name="a", step=1),
        entry("kill", 1.3, victim=10, actor="worker 0"),
        entry("effect", 3.0, pid=11, name="a", step=1),
        entry("passed", 3.1, pid=11, name="a", step=1),
        entry("effect", 3.2, pid=11, name="a", step=INSERTED, version="new"),
        entry("passed", 3.3, pid=11, name="a", step=INSERTED, version="new"),
        entry("ended", 3.4, pid=11, name="a", step=2, version="new"),
    ]
    rows = [Row(1, "a", "done", 2, None), Row(2, "t", "done", 1, None)]
    results: dict[str, object] = {"a": ["a:0"], "t": ["t:0"]}
    return StepEvidence(
        entries, rows, results, dict(results), Counter({("t", 0): 1, ("t", 1): 1}), 2
    )


def findings(evidence: StepEvidence) -> set[str]:
    return {name for name, found in check(evidence).findings.items() if found}


def test_a_valid_storm_has_no_findings() -> None:
    assert findings(good()) == set()
    assert check(good()).figures["repeated by kills"] == 1


def test_an_idle_storm_proves_nothing() -> None:
    idle = StepEvidence([], [], {}, {}, Counter(), 2)
    assert findings(idle) == {"nothing was done"}
    assert len(check(idle).findings["nothing was done"]) == 5


Change = Callable[[StepEvidence], StepEvidence]


def _with(*entries: Entry) -> Change:
    return lambda good: replace(
        good, entries=sorted([*good.entries, *entries], key=lambda line: line["at"])
    )


def _without(is_left_out: Callable[[Entry], bool]) -> Change:
    return lambda good: replace(
        good,
        entries=[one for one in good.entries if one["op"] != "effect" or not is_left_out(one)],
    )


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (_with(entry("ok", 0.5, names=["b"], ids=["id-b"])), "acknowledged jobs lost"),
        (lambda good: replace(good, rows=[*good.rows, good.rows[0]]), "jobs stored twice"),
        (
            lambda good: replace(good, rows=[Row(1, "a", "dead", 2, None), good.rows[1]]),
            "jobs not done in the end",
        ),
        (lambda good: replace(good, results={**good.results, "a": None}), "wrong results"),
        (lambda good: replace(good, steps=3), "effects missing"),
        # The worker that had the effect first lives.
        (
            lambda good: replace(
                good, entries=[{**line, "pid": 12} if line["at"] == 1.2 else line
                               for line in good.entries]
            ),
            "effects repeated, no kill",
        ),
        # The value of the step was stored.
        (_with(entry("effect", 3.0, pid=11, name="a", step=0)), "effects repeated, no kill"),
        # The killed process of that pid was another one.
        (_with(entry("effect", 4.0, pid=10, name="t", step=0),
               entry("effect", 5.0, pid=11, name="t", step=0)), "effects repeated, no kill"),
        # What the version that ended it has in addition.
        (_without(lambda line: line["step"] == INSERTED), "effects missing"),
        (lambda good: replace(good, entries=[{**line, "version": "new"} for line in good.entries]),
         "nothing was done"),
        # The second effect came before the kill.
        (_with(entry("effect", 1.25, pid=11, name="a", step=1)), "effects repeated, no kill"),
        (
            lambda good: replace(good, payments=Counter({("t", 0): 2, ("t", 1): 1})),
            "effects repeated with tx=",
        ),
    ],
)  # fmt: skip
def test_a_violation_is_found(change: Change, finding: str) -> None:
    assert findings(change(good())) == {finding}
