"""A command that cannot start prints the reason once, and nothing else."""

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell

pytestmark = pytest.mark.processes

TIMEOUT_S = 60
_LOGGED = re.compile(r"\S+Z (?:ERROR|WARNING) +forge_jobs\.(?:parent|worker) (.*)")
_NO_QUEUE = (
    "bare_app:forge has no task and no queue to serve: import the modules that define its tasks "
    "there, or pass --queues mail, or set FORGE_QUEUES=mail, or put a [queues] table into "
    "forge.toml"
)
_NO_REDIS = (
    "the Redis backend is not part of this version: use sqlite:///relative.db, "
    "sqlite:////absolute/path.db, postgresql://user@host/database, memory:// or memory://name"
)
_BAD_TOML = "{folder}/forge.toml is not valid TOML: Invalid value (at end of document)"


@pytest.fixture
def bare(tmp_path: Path) -> Shell:
    """A folder whose application declares no queue."""
    (tmp_path / "bare_app.py").write_text("from forge_jobs import Forge\n\nforge = Forge()\n")
    return Shell(tmp_path)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as place:
        yield place.getsockname()[1]


def answer(shell: Shell, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "forge_jobs", *words],
        cwd=shell.folder,
        env={**shell.environment, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def logged(text: str) -> list[str]:
    """The messages of a text in which every line is a log line."""
    lines = [(_LOGGED.fullmatch(line), line) for line in text.splitlines()]
    assert all(match for match, _ in lines), text
    return [match[1] for match, _ in lines if match]


@pytest.mark.parametrize(
    ("queues", "complaint"),
    [
        ("", _NO_QUEUE),
        (
            "bench=100",
            "FORGE_QUEUES: queue 'bench=100' is not allowed: use 1 to 63 letters, digits, '_', "
            "'-' or '.', not starting with '-' or '.'",
        ),
    ],
)
def test_a_worker_without_queues_prints_one_message(
    bare: Shell, queues: str, complaint: str
) -> None:
    done = answer(bare, "worker", "bare_app:forge", FORGE_QUEUES=queues)
    assert (done.returncode, done.stdout) == (1, "")
    assert logged(done.stderr) == [complaint]


def test_a_worker_without_a_parent_prints_one_message(bare: Shell) -> None:
    """Without a parent the worker prints the message itself."""
    done = subprocess.run(
        [sys.executable, "-m", "forge_jobs.cli.worker_child", "bare_app:forge"],
        cwd=bare.folder,
        env=bare.environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"forge worker: {_NO_QUEUE}\n"


def test_a_worker_with_a_wrong_address_prints_one_message(bare: Shell) -> None:
    done = answer(bare, "worker", "bare_app:forge", "--queues", "mail", FORGE_URL="redis://h/0")
    assert (done.returncode, done.stdout) == (1, "")
    assert logged(done.stderr) == [_NO_REDIS]


def test_a_worker_names_a_health_host_that_is_not_its_own(bare: Shell, taken: int) -> None:
    words = ["worker", "bare_app:forge", "--queues", "mail", "--health-port", f"{taken}"]
    done = answer(bare, *words, "--health-host", "192.0.2.1")
    assert (done.returncode, done.stdout) == (1, "")
    [said] = logged(done.stderr)
    assert said == (
        f"--health-port: cannot listen on 192.0.2.1:{taken} (Cannot assign requested address): "
        "choose another port or --health-host"
    )


def test_a_worker_without_its_server_only_logs(bare: Shell) -> None:
    """It retries a few times; each of its lines is a log line."""
    with socket.create_server(("127.0.0.1", 0)) as place:
        url = f"postgresql://me:hunter2@127.0.0.1:{place.getsockname()[1]}/x"
    done = answer(bare, "worker", "bare_app:forge", "--queues", "mail", FORGE_URL=url)
    assert (done.returncode, done.stdout) == (1, "")
    said = logged(done.stderr)
    assert said[-1] == "worker 1 ended before it was up: exit code 1, 5 times in a row"
    assert sum("cannot be reached" in line for line in said) == 5
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [["jobs", "list"], ["web", "--port", "0"], ["dev", "bare_app:forge"], ["db", "create"]],
    ids=" ".join,
)
def test_an_invalid_forge_toml_stops_every_command(bare: Shell, words: list[str]) -> None:
    (bare.folder / "forge.toml").write_text("queues = [")
    done = answer(bare, *words, FORGE_URL="")
    assert (done.returncode, done.stdout) == (2, "")
    more = "(more: forge help bad_config)"
    assert done.stderr == f"forge: {_BAD_TOML.format(folder=bare.folder)} {more}\n"


def test_an_invalid_forge_toml_stops_a_worker(bare: Shell) -> None:
    (bare.folder / "forge.toml").write_text("queues = [")
    done = answer(bare, "worker", "bare_app:forge", FORGE_URL="")
    assert (done.returncode, done.stdout) == (1, "")
    assert logged(done.stderr) == [_BAD_TOML.format(folder=bare.folder)]


@pytest.mark.parametrize(
    "words", [["stats"], ["enqueue", "send"], ["web", "--port", "0"]], ids=" ".join
)
def test_a_wrong_address_is_a_one_line_error(bare: Shell, words: list[str]) -> None:
    done = answer(bare, *words, FORGE_URL="redis://me:hunter2@h/0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"forge: {_NO_REDIS} (more: forge help not_yet)\n"


def test_mission_control_on_a_port_in_use_is_a_one_line_error(bare: Shell, taken: int) -> None:
    done = answer(bare, "web", "--port", f"{taken}")
    assert (done.returncode, done.stdout) == (2, "")
    where = f"cannot listen on 127.0.0.1:{taken} (Address already in use)"
    more = "(more: forge help bad_config)"
    assert done.stderr == f"forge: {where}: choose another --port {more}\n"


@pytest.mark.parametrize("command", ["web", "demo"])
def test_an_invalid_port_is_a_one_line_error(bare: Shell, command: str) -> None:
    done = answer(bare, command, "--port", "70000")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("forge: Invalid value for '--port': 70000 is not in the range")
    assert len(done.stderr.splitlines()) == 1
