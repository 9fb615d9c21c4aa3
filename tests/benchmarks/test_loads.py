"""The loads that `--against` drains: each is seeded, drained and counted. Figures do not matter."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks import against
from benchmarks.against import ROWS, Row, contender, drained
from benchmarks.bench import Bench, Size, open_bench
from benchmarks.figures import Figure
from benchmarks.measures import draining
from benchmarks.measures.draining import Contender, Late, check_load
from benchmarks.processes import ROOT, AgentError
from benchmarks.systems import OURS
from benchmarks.systems.forge_loads import LOADS

LOADED = [row for row in ROWS.values() if row.load]
SOURCE = ROOT / "src"


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with open_bench(Size(1, quick=True)) as opened:
        yield opened


def test_every_load_has_a_row_on_both_stores() -> None:
    assert {row.name for row in LOADED} == {
        f"{place}drain-{load}" for place in ("", "postgres-") for load in LOADS
    }


@pytest.mark.parametrize("row", LOADED, ids=lambda row: row.name)
def test_every_job_is_counted_before_and_after_the_drain(bench: Bench, row: Row) -> None:
    problems: list[str] = []
    one = contender(row, row.quick_jobs, row.name, SOURCE)
    figures = {figure.name: figure.value for figure in drained(bench, one, problems)}
    assert problems == []
    assert figures["jobs/s"] > 0
    assert figures["cpu"] > 0
    assert ("server cpu" in figures) is (row.system != OURS)


@pytest.mark.parametrize("jobs", [500, 1_000, 1_501])
def test_half_of_the_failing_jobs_die_and_the_others_run_twice(jobs: int) -> None:
    ended = LOADS["failing"].ended(jobs)
    assert ended["dead"] == jobs // 2
    assert ended["done"] == jobs - jobs // 2
    assert ended["attempts"] == ended["dead"] + 2 * ended["done"] == LOADS["failing"].calls(jobs)


@pytest.mark.parametrize(
    ("load", "rows"),
    [
        ("keyed", {"done": 500, "attempts": 500, "keys": 1}),
        ("failing", {"done": 500, "attempts": 750}),
        ("limited", {"done": 499, "held": 1, "attempts": 499}),
        ("due", {"done": 500, "attempts": 501}),
    ],
)
def test_rows_that_are_wrong_after_the_drain_are_named(load: str, rows: dict[str, int]) -> None:
    problems: list[str] = []
    check_load(contender(ROWS[f"drain-{load}"], 500, load, SOURCE), "ended", rows, problems)
    assert len(problems) == 1
    assert problems[0].startswith(f"{load}: ended rows are {rows} instead of ")


def test_jobs_that_are_due_too_early_are_seeded_again_with_a_longer_lead(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    leads: list[float] = []

    def drain(_: Bench, one: Contender, problems: list[str]) -> list[Figure]:
        leads.append(one.seed["lead"])
        if len(leads) < 3:
            raise Late("too late")
        return []

    monkeypatch.setattr(draining, "drain_once", drain)
    one = contender(ROWS["drain-due"], 100, "due", SOURCE)
    assert drained(bench, replace(one, seed={"lead": 2.0}), []) == []
    assert leads == [2.0, 4.0, 8.0]


def test_a_lead_that_is_never_long_enough_is_a_failure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(against, "MAX_LEAD_S", 0.0)
    one = contender(ROWS["drain-due"], 100, "due", SOURCE)
    with pytest.raises(AgentError, match="the jobs were due before"):
        drained(bench, replace(one, seed={"lead": 0.001}), [])
