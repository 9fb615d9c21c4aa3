"""O1: no page, response, command or log shows the session key or the stored sessions."""

import base64
import logging
import sqlite3
from pathlib import Path

import httpx
import pytest

from forge_jobs.cli.commands import run
from forge_jobs.web.api.all import ROUTES
from forge_jobs.web.api.openapi import openapi_path
from forge_jobs.web.pages.all import PAGES
from tests.web.harness import PASSWORD, serve_on_socket, web_harness

COMMANDS = (
    ("doctor",), ("db", "status"), ("queues", "list"), ("jobs", "list"), ("audit",), ("stats",),
    ("limits", "list"), ("workers",), ("cron", "list"),
)  # fmt: skip


def stored_secrets(path: Path) -> list[str]:
    """The secrets, in every encoding."""
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT namespace, name, value FROM forge_settings").fetchall()
    connection.close()
    [key] = [value for namespace, _, value in rows if namespace == "web"]
    [(name, value)] = [row[1:] for row in rows if row[0].startswith("web.session.")]
    written = [key.hex(), repr(key)[2:-1], str(int.from_bytes(key, "big")), name, value.decode()]
    encoded = [base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode()]
    return [*written, *(text.rstrip("=") for text in encoded)]


def test_o1_no_page_response_command_or_log_shows_a_session_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"sqlite:///{tmp_path}/jobs.db"
    outputs: list[str] = []
    with web_harness(url) as harness, serve_on_socket(harness.app) as address:
        with httpx.Client(base_url=address, timeout=60) as client:
            response = client.post("/login", data={"password": PASSWORD})
            assert response.status_code == 303
            text = client.cookies["forge_session"].partition(".")[2]
            paths = [page.path for page in PAGES if "{" not in page.path]
            paths += [
                openapi_path(one) for one in ROUTES if one.method == "GET" and "{" not in one.path
            ]
            for path in (*paths, "/metrics", "/healthz", "/readyz", "/login"):
                response = client.get(
                    path, params={"tag": "none"} if path.endswith("/show") else None
                )
                expected = 404 if path.endswith("/show") else 200
                assert response.status_code == expected, path
                outputs.append(f"{response.text} {response.headers}")
        forbidden = [*stored_secrets(tmp_path / "jobs.db"), text]
    for command in COMMANDS:
        capsys.readouterr()
        assert run([*command, "--json", "--url", url]) in (0, 1), command
        output = capsys.readouterr()
        assert output.out.strip(), command
        outputs += [output.out, output.err]
    # the HTTP client of this test logs its responses
    ours = [record for record in caplog.records if not record.name.startswith("http")]
    outputs += [record.getMessage() for record in ours]
    for one in outputs:
        assert not [secret for secret in forbidden if secret in one], one[:200]
