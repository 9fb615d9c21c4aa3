"""`--varied`: each seed draws its own size, and can be replayed in it."""

import pytest

from rigs.simulation import __main__ as command
from rigs.simulation.campaign import run_seed
from rigs.simulation.sizes import draw_size
from rigs.simulation.world import Options

LARGEST = Options(jobs=150, workflows=25, nodes=4, minutes=2.5)
SEEDS = range(300)


def test_no_size_is_above_the_largest() -> None:
    for seed in SEEDS:
        drawn = draw_size(seed, LARGEST)
        assert 5 <= drawn.jobs <= 150
        assert 2 <= drawn.workflows <= 25
        assert drawn.bound == 0 or 10 <= drawn.bound <= 150
        assert 2 <= drawn.nodes <= 4
        assert 0.3 <= drawn.minutes <= 2.5
        assert drawn.drain_s == LARGEST.drain_s


def test_small_and_large_sizes_are_drawn() -> None:
    drawn = [draw_size(seed, LARGEST) for seed in SEEDS]
    assert min(options.jobs for options in drawn) < 10
    assert max(options.jobs for options in drawn) > 100
    assert {options.nodes for options in drawn} == {2, 3, 4}
    assert 0 < sum(1 for options in drawn if options.bound) < len(drawn)


def test_a_number_below_the_smallest_stays() -> None:
    drawn = draw_size(1, Options(jobs=3, workflows=0, nodes=1, minutes=0.1))
    assert (drawn.jobs, drawn.workflows, drawn.nodes, drawn.minutes) == (3, 0, 1, 0.1)


def test_a_varied_seed_is_simulated_in_its_size_and_can_be_replayed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main(["--seed", "12", "--varied", "--twice", "--trace"]) == 0
    varied = [line for line in capsys.readouterr().out.splitlines() if line[:1] == " "]
    drawn = draw_size(12, Options())
    whole = run_seed(12, drawn, trace=True).lines
    assert whole
    assert [line for line in whole if line in varied] == whole


def test_a_failure_names_the_command_that_replays_it() -> None:
    largest = Options(jobs=30, workflows=5, minutes=0.4, drain_s=0.0)
    report = run_seed(3, largest, varied=True)
    drawn = draw_size(3, largest)
    assert "seed 3 broke" in report.failure
    assert f"--jobs {drawn.jobs}" in report.failure
    assert f"--minutes {drawn.minutes}" in report.failure
    assert f"--workflows {drawn.workflows}" in report.failure
