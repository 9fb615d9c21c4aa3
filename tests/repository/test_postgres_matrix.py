"""The runner over all servers: what it counts, and that a failure on any of them fails it."""

from pathlib import Path

import pytest

from scripts import postgres_matrix, postgres_servers
from scripts.postgres_matrix import Run

REPORT = """<testsuites>
<testsuite tests="10" failures="2" errors="1" skipped="3"/>
</testsuites>
"""


def test_reports_are_counted(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert postgres_matrix._counts(tmp_path / "report.xml") == (4, 3, 3)
    assert postgres_matrix._counts(tmp_path / "nothing.xml") == (0, 0, 0)


def test_a_failure_on_one_server_fails_the_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[int, list[str]]] = []

    def ran(major: int, tests: list[str]) -> Run:
        asked.append((major, tests))
        bad = int(major == 14)
        return Run(major, f"{major}.1", 9, bad, 0, 1.0, bad)

    monkeypatch.setattr(postgres_matrix, "run", ran)
    monkeypatch.setattr(postgres_matrix, "files", lambda: ["tests/it.py"])
    monkeypatch.setattr(postgres_servers, "pins", lambda: {key: {} for key in range(12, 16)})
    assert postgres_matrix.main(["--", "-x"]) == 1
    assert asked == [(major, ["tests/it.py", "-x"]) for major in (13, 14, 15)]
    assert "pytest ended with 1" in capsys.readouterr().out
    assert postgres_matrix.main(["13", "15"]) == 0


def test_words_name_servers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(postgres_servers, "pins", lambda: {key: {} for key in [12, 13, 18]})
    assert postgres_servers.majors(["refused", "oldest"]) == [12, 13]
    assert postgres_servers.majors(["all", "18"]) == [13, 18]
    monkeypatch.setattr(postgres_servers, "pins", lambda: {key: {} for key in [15, 18]})
    assert postgres_servers.majors(["refused", "oldest"]) == [15]
    assert "not tested here" in capsys.readouterr().out


def test_a_server_that_cannot_be_had_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(postgres_servers, "here", lambda: "plan9-x64")
    assert postgres_servers.main(["oldest"]) == 1
    assert "no Postgres servers are pinned for plan9-x64" in capsys.readouterr().err
    monkeypatch.setattr(postgres_servers, "here", lambda: "darwin-arm64")
    assert postgres_servers.main(["13"]) == 1
    assert "no Postgres 13 for darwin-arm64: it has 15, 16, 17, 18" in capsys.readouterr().err
