"""Errors are one line with a remedy; help shows an example."""

import json
import re
import shlex

import pytest

from forge_jobs.cli.commands import run
from forge_jobs.cli.worker import HELP, worker
from tests.cli.conftest import InProcess

COMMANDS = [
    "", "worker", "dev", "demo", "enqueue", "stats", "doctor", "bench", "workers", "workers quiet",
    "jobs", "jobs list", "jobs show", "jobs retry", "jobs cancel", "jobs delete", "jobs run-now",
    "jobs duplicate", "queues", "queues list", "queues set", "queues pause", "queues resume",
    "queues unthrottle", "db", "db create", "db migrate", "db status", "db drop", "db reset",
    "cron", "cron list", "cron create", "cron set", "cron run", "cron history", "cron enable",
    "cron disable", "cron delete", "limits", "limits list", "limits set", "limits drain", "web",
    "audit", "help",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example_in_80_columns(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*shlex.split(command), "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    example = text.split("Example:")[1].splitlines()[1].strip()
    assert example.startswith((f"forge {command}".strip(), "FORGE_URL="))


def test_every_example_parses(capsys: pytest.CaptureFixture[str]) -> None:
    """No example uses an option that does not exist."""
    for command in COMMANDS:
        run([*shlex.split(command), "--help"])
        text = capsys.readouterr().out
        example = text.split("Example:")[1].splitlines()[1]
        for option in re.findall(r"--[a-z-]+", example.split("forge", 1)[1]):
            words = example.split("forge", 1)[1].split()
            path = [word for word in words[:2] if re.fullmatch(r"[a-z][a-z-]*", word)]
            run([*path, "--help"])
            assert option in capsys.readouterr().out


def test_the_worker_command_accepts_every_option_of_its_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(["worker", "--help"])
    panel = capsys.readouterr().out.split("Options")[1]
    options = [name for name in re.findall(r"│ (--[a-z-]+)", panel) if name != "--help"]
    # Every option has a text, and so has the argument APP.
    assert len(options) == len(HELP) - 1
    words = [word for name in options for word in (name, "1") if name != "--log-jobs"]
    words.append("--log-jobs")
    assert worker(["wrong.py", *words]) == 2
    assert "--log-format '1'" in capsys.readouterr().err
    words[words.index("--log-format") + 1] = "json"
    words[words.index("--log-level") + 1] = "debug"
    assert worker(["wrong.py", *words]) == 2
    assert "APP 'wrong.py'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nonsense", "No such command 'nonsense'"),
        ("jobs show", "Missing argument 'ID'"),
        ("jobs list --limit many", "--limit"),
        ("jobs list --nonsense", "--nonsense"),
        ("stats --minutes 0", "--minutes"),
        ("jobs list --status nonsense", "is no state"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_2(
    line: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(shlex.split(line)) == 2
    said = capsys.readouterr()
    assert complaint in said.err
    assert said.out == ""
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    "line", ["nonsense --json", "jobs list --limit 0 --url memory:// --json", "jobs --json"]
)
def test_json_errors_have_a_code(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*shlex.split(line)]) == 2
    error = json.loads(capsys.readouterr().err)["error"]
    assert set(error) == {"code", "message"}


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("postgresql://me:hunter2@db/x?schema=No", 2),
        ("redis://me:hunter2@db/0", 2),
        ("mysql://me:hunter2@db/x", 2),
        ("sqlite://me:hunter2@db/x", 2),
        ("forge.db", 2),
    ],
)
def test_a_bad_address_is_refused_without_its_password(
    url: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["jobs", "list", "--url", url]) == code
    said = capsys.readouterr()
    assert "hunter2" not in said.err + said.out
    assert len(said.err.splitlines()) == 1


def test_bare_groups_print_their_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    said = capsys.readouterr()
    assert "Usage: forge" in said.out + said.err
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("forge-jobs ")


def test_tables_have_no_colour_outside_a_terminal(in_process: InProcess) -> None:
    in_process.fill(lambda harness: harness.enqueue(1))
    assert "\x1b" not in in_process.forge("jobs", "list").out


def test_u15j_the_first_example_of_help_needs_no_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that need an extra come later and name it."""
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == 0
    text = capsys.readouterr().out.split("Example:")[1].split("╭")[0]
    examples = [line.strip() for line in text.splitlines() if line.strip()]
    with_web = ("forge demo", "forge dev", "forge web")
    assert not examples[0].startswith(with_web)
    assert all("[web]" in line for line in examples if line.startswith(with_web))
