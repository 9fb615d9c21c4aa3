"""``forge web``: the server and its credentials."""

import os
import pty
import re
import signal
import sys

import httpx
import pytest

from forge_jobs.web.access.credentials import from_environment
from forge_jobs.web.access.hashes import hash_token
from forge_jobs.web.access.identity import Role
from tests.cli.conftest import InProcess
from tests.cli.shell import Shell, stop


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PASSWORD", "PASSWORD_OPERATOR", "PASSWORD_VIEWER", "TOKENS"):
        monkeypatch.delenv(f"FORGE_WEB_{name}", raising=False)


@pytest.mark.processes
def test_it_serves_until_a_signal(shell: Shell) -> None:
    with shell.running("web", "--port", "0") as web:
        assert web.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+", web.stdout.readline())
        assert address is not None
        assert httpx.get(f"{address[0]}/healthz").text == "ok\n"
        assert httpx.get(f"{address[0]}/api/queue/overview").json() == []
        assert stop(web, signal.SIGTERM) == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1"])
def test_an_open_address_needs_credentials(in_process: InProcess, host: str) -> None:
    said = in_process.forge("web", "--host", host)
    assert said.code != 0
    # Whole: a word such as "password:" would have hidden the next one.
    assert "Set FORGE_WEB_PASSWORD" in said.err
    assert "***" not in said.err


def test_a_short_password_is_refused(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_WEB_PASSWORD", "short")
    said = in_process.forge("web", "--host", "0.0.0.0")
    assert said.code == 2
    assert "shorter than 8" in said.err
    assert "'short'" not in said.err


def test_a_token_is_shown_once_and_kept_as_its_hash(shell: Shell) -> None:
    said = shell.ok("web", "token", "grafana", "--role", "operator")
    token, entry = re.findall(r"(?:token|TOKENS)\s+(\S+)", said)
    assert entry == f"grafana:operator:{hash_token(token)}"
    assert token not in entry
    assert from_environment({"FORGE_WEB_TOKENS": entry}) is not None
    assert shell.forge("web", "token", "x", "--role", "king").returncode == 2
    assert Role.OPERATOR.word == "operator"


@pytest.mark.processes
@pytest.mark.parametrize(("password", "code"), [("x", 2), ("seven77", 2), ("eight888", 0)])
def test_o7_a_short_password_is_not_hashed(shell: Shell, password: str, code: int) -> None:
    """In a terminal of its own, because the prompt reads from the terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        words = [sys.executable, "-m", "forge_jobs", "web", "password"]
        os.execve(sys.executable, words, shell.environment)
    said = ""
    answers = 0
    while True:
        try:
            said += os.read(terminal, 4096).decode()
        except OSError:  # the terminal is closed when the command ends
            break
        if answers < len(re.findall(r"(?:Password|confirmation): ", said)):
            os.write(terminal, f"{password}\n".encode())
            answers += 1
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == code, said
    assert ("scrypt$" in said) is (code == 0)
    if code:
        assert "shorter than 8 characters: choose a longer one" in said
    assert password == "x" or password not in said
