"""Each check of the steps storm finds its violation in made-up evidence."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rigs.storms.checks import Row
from rigs.storms.step_checks import StepEvidence, check

Entry = dict[str, Any]


def entry(op: str, at: float, pid: int = 1, **fields: Any) -> Entry:
    return {"op": op, "at": at, "pid": pid, "parent": 1, **fields}


def good() -> StepEvidence:
    """Two workflows of two steps; the second step of *a* is open when its worker is killed. *t* has
    its effects in the table."""
    entries = [
        entry("ok", 0.0, names=["a"], ids=["id-a"]),
        entry("ok", 0.0, names=["t"], ids=["id-t"]),
        entry("effect", 1.0, pid=10, name="a", step=0),
        entry("passed", 1.1, pid=10, name="a", step=0),
        entry("effect", 1.2, pid=10, name="a", step=1),
        entry("kill", 1.3, victim=10, actor="worker 0"),
        entry("effect", 3.0, pid=11, name="a", step=1),
        entry("passed", 3.1, pid=11, name="a", step=1),
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
    assert len(check(idle).findings["nothing was done"]) == 4


Change = Callable[[StepEvidence], StepEvidence]


def _with(*entries: Entry) -> Change:
    return lambda good: replace(
        good, entries=sorted([*good.entries, *entries], key=lambda line: line["at"])
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
