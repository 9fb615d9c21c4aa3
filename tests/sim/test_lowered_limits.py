"""A seed in which a limit was lowered below what ran, and a reaped job then ran above it."""

from rigs.simulation.world import Options, simulate


def test_a_reaped_job_does_not_run_above_a_lowered_limit() -> None:
    assert simulate(10, Options(jobs=10, bound=60, minutes=1.0)).violations == []
