"""Each check of the kill storm finds its violation in made-up evidence."""

from collections.abc import Callable
from typing import Any

import pytest

from rigs.storms.checks import Evidence, Row, check

Entry = dict[str, Any]


def entry(op: str, at: float, **fields: Any) -> Entry:
    return {"op": op, "at": at, "pid": 1, **fields}


def run(name: str, pid: int, start: float, end: float | None, epoch: int = 1) -> list[Entry]:
    common = {"name": name, "job": f"id-{name}", "parent": 1, "epoch": epoch, "attempt": 1}
    lines = [{"op": "start", "at": start, "pid": pid, **common}]
    if end is not None:
        lines.append({"op": "end", "at": end, "pid": pid, **common})
    return lines


def good() -> tuple[list[Entry], list[Row], int]:
    """a runs once; b is interrupted by a kill and runs again; c and d are one batch."""
    entries = [
        entry("invoke", 0.0, names=["a"], keyed=False),
        entry("ok", 0.1, names=["a"], ids=["id-a"]),
        entry("invoke", 0.2, names=["b"], keyed=True),
        entry("ok", 0.3, names=["b"], ids=["id-b"]),
        entry("invoke", 0.4, names=["c", "d"], keyed=False),
        entry("invoke", 0.5, names=["e"], keyed=False),
        *run("a", 10, 1.0, 1.1),
        *run("b", 10, 1.0, None),
        *run("c", 11, 1.0, 1.1),
        *run("d", 11, 1.0, 1.1),
        entry("kill", 1.2, victim=10, actor="worker 0", blackout=False),
        *run("b", 11, 3.0, 3.1, epoch=2),
    ]
    rows = [Row(key, name, "done", 1, None) for key, name in enumerate("abcd")]
    return entries, rows, 4


def findings(entries: list[Entry], rows: list[Row], counted: int) -> dict[str, list[str]]:
    entries = sorted(entries, key=lambda line: line["at"])
    report = check(Evidence(entries, rows, counted, lease_s=2.0))
    return {name: found for name, found in report.findings.items() if found}


def test_a_valid_storm_has_no_findings() -> None:
    assert findings(*good()) == {}
    figures = check(Evidence(*good(), lease_s=2.0)).figures
    assert figures["repeated runs"] == 1
    assert figures["begun, never answered"] == 3
    assert figures["slowest recovery"] == "1.80 s"


Violation = Callable[[list[Entry], list[Row]], int | None]


def _lose_one(entries: list[Entry], rows: list[Row]) -> int:
    del rows[0]
    return 3


def _invent_one(entries: list[Entry], rows: list[Row]) -> int:
    rows.append(Row(9, "z", "done", 1, None))
    entries.extend(run("z", 11, 1.0, 1.1))
    return 5


def _store_twice(entries: list[Entry], rows: list[Row]) -> int:
    rows.append(Row(9, "b", "done", 1, None))
    return 5


def _tear_a_batch(entries: list[Entry], rows: list[Row]) -> int:
    del rows[3]
    return 3


def _leave_running(entries: list[Entry], rows: list[Row]) -> int:
    rows[0] = Row(0, "a", "running", 1, 7)
    return 3


def _kill_by_attempts(entries: list[Entry], rows: list[Row]) -> int:
    rows[0] = Row(0, "a", "dead", 5, None)
    return 3


def _finish_twice(entries: list[Entry], rows: list[Row]) -> int:
    return 5


def _finish_without_a_run(entries: list[Entry], rows: list[Row]) -> None:
    entries[:] = [line for line in entries if (line["op"], line.get("name")) != ("end", "a")]


def _run_overlapping(entries: list[Entry], rows: list[Row]) -> None:
    entries.extend(run("a", 11, 1.05, 1.15, epoch=2))


def _run_again_without_a_kill(entries: list[Entry], rows: list[Row]) -> None:
    entries.extend(run("c", 12, 2.0, 2.1, epoch=2))


def _reuse_an_epoch(entries: list[Entry], rows: list[Row]) -> None:
    for line in entries:
        if line.get("epoch") == 2:
            line["epoch"] = 1


def _recover_late(entries: list[Entry], rows: list[Row]) -> None:
    for line in entries:
        if line.get("epoch") == 2:
            line["at"] += 6


@pytest.mark.parametrize(
    ("violation", "check_name"),
    [
        (_lose_one, "acknowledged jobs lost"),
        (_invent_one, "unexpected jobs"),
        (_store_twice, "unexpected jobs"),
        (_tear_a_batch, "batches stored in part"),
        (_leave_running, "jobs not done in the end"),
        (_kill_by_attempts, "jobs not done in the end"),
        (_finish_twice, "double finishes"),
        (_finish_without_a_run, "double finishes"),
        (_run_overlapping, "runs without an explanation"),
        (_run_again_without_a_kill, "runs without an explanation"),
        (_reuse_an_epoch, "epochs going backwards"),
        (_recover_late, "slow recoveries"),
    ],
)
def test_each_violation_is_found(violation: Violation, check_name: str) -> None:
    entries, rows, counted = good()
    changed = violation(entries, rows)
    found = findings(entries, rows, counted if changed is None else changed)
    assert list(found) == [check_name]
