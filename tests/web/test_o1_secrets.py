"""O1: the key and the sessions in the store are shown nowhere: no page, answer, command or log."""

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
from tests.web.panel import PASSWORD, on_a_socket, panel

COMMANDS = (
    ("doctor",), ("db", "status"), ("queues", "list"), ("jobs", "list"), ("audit",), ("stats",),
    ("limits", "list"), ("workers",), ("cron", "list"),
)  # fmt: skip


def kept(path: Path) -> list[str]:
    """What must not be seen, in each way it could be written."""
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT namespace, name, value FROM forge_settings").fetchall()
    connection.close()
    assert len(rows) == 2
    [key] = [value for namespace, _, value in rows if namespace == "web"]
    [(name, value)] = [row[1:] for row in rows if row[0] != "web"]
    written = [key.hex(), repr(key)[2:-1], str(int.from_bytes(key, "big")), name, value.decode()]
    encoded = [base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode()]
    return [*written, *(text.rstrip("=") for text in encoded)]


def test_o1_no_page_answer_command_or_log_shows_what_opens_a_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"sqlite:///{tmp_path}/jobs.db"
    seen: list[str] = []
    with panel(url) as made, on_a_socket(made.app) as address:
        with httpx.Client(base_url=address, timeout=60) as client:
            entered = client.post("/login", data={"password": PASSWORD})
            assert entered.status_code == 303
            text = client.cookies["forge_session"].partition(".")[2]
            paths = [page.path for page in PAGES if "{" not in page.path]
            paths += [
                openapi_path(one) for one in ROUTES if one.method == "GET" and "{" not in one.path
            ]
            for path in (*paths, "/metrics", "/healthz", "/readyz", "/login"):
                answer = client.get(path)
                assert answer.status_code == 200, path
                seen.append(f"{answer.text} {answer.headers}")
        forbidden = [*kept(tmp_path / "jobs.db"), text]
    for words in COMMANDS:
        capsys.readouterr()
        assert run([*words, "--json", "--url", url]) in (0, 1), words
        said = capsys.readouterr()
        assert said.out.strip(), words
        seen += [said.out, said.err]
    # the client of this test logs what it gets
    ours = [record for record in caplog.records if not record.name.startswith("http")]
    seen += [record.getMessage() for record in ours]
    for one in seen:
        assert not [secret for secret in forbidden if secret in one], one[:200]
