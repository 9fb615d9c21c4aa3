"""The campaign of every test run: a hundred seeds, each of which must pass every check."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rigs.simulation import __main__ as command
from rigs.simulation.campaign import run_seeds
from rigs.simulation.coverage import REQUIRED_EVENTS
from rigs.simulation.excerpt import excerpt
from rigs.simulation.world import Options, SimulationResult, simulate

OPTIONS = Options(jobs=100, minutes=1.5)
BATCHES = 4
SEEDS = 100
REPLAY = "from rigs.simulation.__main__ import main; main(['--seed', '{seed}', '--trace'])"

seen: Counter[str] = Counter()


def assert_kept(ended: SimulationResult) -> None:
    told = [f"{violation.rule}: {violation.text}" for violation in ended.violations[:10]]
    if told:
        told += excerpt(ended.history, ended.violations[0])
    assert not ended.violations, f"seed {ended.seed} broke invariants:\n" + "\n".join(told)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_hundred_seeds_pass_every_check(batch: int) -> None:
    for seed in range(batch, SEEDS, BATCHES):
        ended = simulate(seed, OPTIONS)
        assert_kept(ended)
        seen.update(ended.seen)


def test_every_injected_error_of_the_campaign_had_an_effect() -> None:
    if not seen:
        for seed in range(40):
            seen.update(simulate(seed, OPTIONS).seen)
    assert [name for name in REQUIRED_EVENTS if not seen[name]] == []


def test_seeds_that_once_failed_pass() -> None:
    lines = (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    for line in lines:
        words = line.partition("#")[0].split()
        if words:
            seed, jobs, nodes, minutes, *workflows = words
            chosen = Options(jobs=int(jobs), nodes=int(nodes), minutes=float(minutes))
            if workflows:
                chosen = replace(chosen, workflows=int(workflows[0]))
            assert_kept(simulate(int(seed), chosen))


@pytest.mark.parametrize("seed", [3, 17, 29])
def test_a_seed_is_deterministic(seed: int) -> None:
    first, second = simulate(seed, OPTIONS), simulate(seed, OPTIONS)
    assert len(first.history.records) > 1_000
    assert first.history.records == second.history.records


def test_two_seeds_give_different_histories() -> None:
    first, second = simulate(1, OPTIONS), simulate(2, OPTIONS)
    assert first.history.records != second.history.records


def test_a_seed_is_deterministic_across_processes_and_hash_seeds(
    project_root: Path,
) -> None:
    traces = [
        subprocess.run(
            [sys.executable, "-c", REPLAY.format(seed=5)],
            cwd=project_root,
            env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        ).stdout.splitlines()
        for hash_seed in ("1", "4242")
    ]
    first, second = ([line for line in trace if _is_event(line)] for trace in traces)
    assert len(first) > 1_000
    assert first == second


def test_the_command_prints_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--seeds", "2", "--jobs", "20", "--minutes", "0.5", "--twice"]
    assert command.main(arguments) == 0
    output = capsys.readouterr().out
    assert "2 seeds, 3 nodes" in output
    assert "jobs stored" in output


def test_seeds_split_over_processes_give_the_summary_of_one(
    project_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--seeds", "3", "--jobs", "10", "--workflows", "5", "--minutes", "0.2"]
    assert command.main([*arguments, "--processes", "1"]) == 0
    # In a process of its own, because multiprocessing keeps one more process until its end.
    split = subprocess.run(
        [sys.executable, "-m", "rigs.simulation", *arguments, "--processes", "2"],
        cwd=project_root,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    summary = capsys.readouterr().out.splitlines()[1:]
    assert split.stdout.splitlines()[1:] == summary != []


def test_failures_are_reported_in_the_order_of_the_seeds() -> None:
    options = Options(jobs=20, workflows=5, minutes=0.2, drain_s=0.0)
    with run_seeds([7, 5], options, processes=1, twice=False, trace=True) as reports:
        told = list(reports)
    assert [report.seed for report in told] == [7, 5]
    for report in told:
        assert f"seed {report.seed} broke" in report.failure
        assert "stuck" in report.failure
        assert any(_is_event(line) for line in report.lines)


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--seed", "x"], ["--what"]])
def test_the_command_refuses_invalid_arguments(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        command.main(arguments)
    assert error.value.code == 2


def _is_event(line: str) -> bool:
    return line[:12].strip().replace(".", "").isdigit()
