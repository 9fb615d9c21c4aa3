"""``forge web``: the server and its credentials."""

import re
import signal

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
    assert "FORGE_WEB_PASSWORD" in said.err


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
