"""The runner over all versions: what it counts, and that a failure on any of them fails it."""

import tomllib
from pathlib import Path

import pytest

from scripts import matrix, postgres_servers, python_environments
from scripts.matrix import Row, Run

REPORT = """<testsuites>
<testsuite tests="10" failures="2" errors="1" skipped="3"/>
</testsuites>
"""


def test_reports_are_counted(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert matrix._counts(tmp_path / "report.xml") == (4, 3, 3)
    assert matrix._counts(tmp_path / "nothing.xml") == (0, 0, 0)


def test_a_failure_on_one_server_fails_the_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, int, tuple[str, ...], list[str]]] = []

    def ran(row: Row, more: list[str]) -> Run:
        asked.append((row.python, row.major, row.tests, more))
        bad = int(row.major == 14)
        return Run(row.python, f"{row.major}.1", 9, bad, 0, 1.0, bad)

    monkeypatch.setattr(matrix, "run", ran)
    monkeypatch.setattr(matrix, "files", lambda: ["tests/it.py"])
    monkeypatch.setattr(postgres_servers, "pins", lambda: {key: {} for key in range(12, 16)})
    monkeypatch.setattr(python_environments, "own", lambda: "3.11")
    monkeypatch.setattr(python_environments, "find", lambda minor: None)
    assert matrix.main(["--", "-x"]) == 1
    on_postgres = (*matrix.ON_POSTGRES, "tests/it.py")
    on_python = (*matrix.ON_PYTHON, *matrix.PYTHON_TESTS)
    assert asked == [
        *(("3.11", major, on_postgres, ["-x"]) for major in (13, 14, 15)),
        *((minor, 15, on_python, ["-x"]) for minor in ("3.12", "3.13")),
        *((minor, 15, matrix.DJANGO_TESTS, ["-x"]) for _ in range(3) for minor in ("3.12", "3.13")),
    ]
    assert "pytest ended with 1" in capsys.readouterr().out
    assert matrix.main(["13", "15"]) == 0
    asked.clear()
    assert matrix.main(["3.13"]) == 0
    assert asked == [("3.13", 15, on_python, [])]
    rows = matrix.rows(["django"])
    assert [row.django for row in rows] == ["5.2", "5.2", "6.0", "6.0", "6.1", "6.1"]


def test_u19_a_python_that_cannot_be_had_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert matrix.main(["3.2"]) == 1
    assert "no Python 3.2 with venv here" in capsys.readouterr().err


def test_u19_the_pythons_of_the_matrix_are_those_that_the_package_names() -> None:
    project = tomllib.loads((matrix.python_environments.ROOT / "pyproject.toml").read_text())
    named = [
        text.rpartition(" ")[2]
        for text in project["project"]["classifiers"]
        if text.startswith("Programming Language :: Python :: 3.")
    ]
    assert named == list(matrix.PYTHONS)


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
