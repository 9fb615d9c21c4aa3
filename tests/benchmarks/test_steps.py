"""The measures of durable steps in their quick size, and how they are judged. Figures do not
matter; that workflows, steps and waits are counted does."""

from collections.abc import Iterator

import pytest

from benchmarks import targets
from benchmarks.bench import Bench, Size, open_bench
from benchmarks.figures import Figure, Series, Verdict
from benchmarks.measures import MEASURES
from benchmarks.measures.postgres_step_resume import PostgresStepResume
from benchmarks.measures.postgres_step_sleepers import PostgresStepSleepers
from benchmarks.measures.postgres_steps import PostgresSteps
from benchmarks.systems import OWN
from benchmarks.systems.forge_loads import LOADS, STEPS


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with open_bench(Size(1, quick=True), OWN) as opened:
        yield opened


@pytest.mark.parametrize(
    "name", ["steps", "postgres-steps", "postgres-step-resume", "postgres-step-broadcast"]
)
def test_a_round_counts_its_rows(bench: Bench, name: str) -> None:
    measure = MEASURES[name]()
    measure.setup(bench)
    figures = measure.round(bench, 0)
    assert measure.verify(bench) == []
    assert figures
    assert all(figure.value > 0 for figure in figures)


def test_a_workflow_is_done_when_each_of_its_steps_is_stored() -> None:
    load = LOADS["steps"]
    assert load.calls(7) == 7 * STEPS
    assert load.ended(7) == {"done": 7, "attempts": 7, "steps": 7 * STEPS}


def series(*figures: tuple[str, str, float]) -> Series:
    made = Series()
    made.add(Figure(system, name, value, "") for system, name, value in figures)
    return made


def test_steps_are_judged_by_the_best_setting_and_the_thriftiest_peer() -> None:
    found = series(
        ("ours", "steps/s", 10_000), ("ours", "cpu", 30), ("ours", "server cpu", 10),
        ("raw SQL", "steps/s", 40_000), ("raw SQL", "cpu", 1), ("raw SQL", "server cpu", 1),
        ("dbos, start", "steps/s", 500), ("dbos, start", "cpu", 900),
        ("dbos, start", "server cpu", 300),
        ("absurd, 16 × 2", "steps/s", 1_000), ("absurd, 16 × 2", "cpu", 200),
        ("absurd, 16 × 2", "server cpu", 200),
    )  # fmt: skip
    outcomes = {one.target: one for one in PostgresSteps().judge(found)}
    assert outcomes[targets.POSTGRES_STEPS].measured == 10
    assert outcomes[targets.POSTGRES_STEPS_LIMIT].measured == 25
    assert outcomes[targets.POSTGRES_STEPS_LIMIT].verdict is Verdict.MISSED
    assert outcomes[targets.POSTGRES_STEPS_COST].measured == 10


def test_a_resume_is_compared_with_both_peers() -> None:
    found = series(("ours", "resume", 10), ("absurd", "resume", 20), ("dbos", "resume", 900))
    measured = [one.measured for one in PostgresStepResume().judge(found)]
    assert measured == [90, 0.5]
    alone = PostgresStepResume().judge(series(("ours", "resume", 10)))
    assert [one.verdict for one in alone] == [Verdict.OPEN, Verdict.OPEN]


def test_a_worker_that_needs_less_than_an_idle_one_needs_nothing() -> None:
    found = series(("ours", "sleeping", -0.3), ("ours", "waiting", 6.0), ("ours", "parking", 9.0))
    sleeping, waiting, parking = PostgresStepSleepers().judge(found)
    assert (sleeping.measured, sleeping.verdict) == (0.0, Verdict.AIM)
    assert waiting.verdict is Verdict.MISSED
    assert parking.verdict is Verdict.BESIDE
