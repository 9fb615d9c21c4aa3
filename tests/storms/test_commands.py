"""The command storm fails when it ran no command: an empty run proves nothing."""

from pathlib import Path

import pytest

from rigs.storms import __main__ as command_line
from rigs.storms import commands


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of the command line; a test may add more."""
    words = ["storms", "--only", "commands", "--seed", "7"]
    monkeypatch.setattr("sys.argv", words)
    return words


def test_a_storm_of_zero_commands_fails(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments += ["--jobs", "0"]
    assert command_line.main() == 1
    output = capsys.readouterr().out
    assert "FAILED: no command was run" in output
    assert "FAILED: commands on sqlite" in output


def test_a_storm_whose_program_never_starts_fails(
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    arguments += ["--jobs", "3"]
    monkeypatch.setattr(commands, "PROGRAM", tmp_path / "missing.py")
    assert command_line.main() == 1
    assert "FAILED: no command was run" in capsys.readouterr().out


def test_a_storm_of_a_few_commands_passes(arguments: list[str]) -> None:
    arguments += ["--jobs", "16"]
    assert command_line.main() == 0
