"""``forge db``: create, migrate, drop; queries never create a database."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import InProcess


@pytest.mark.parametrize("command", ["jobs list", "stats", "workers", "queues list"])
def test_queries_never_create_a_database(on_file: InProcess, command: str) -> None:
    answer = on_file.forge(*command.split())
    assert answer.code == 1
    assert re.fullmatch(
        r"forge: there is no database at sqlite:///forge.db: .+`forge db create` "
        r"\(more: forge help \w+\)\n",
        answer.err,
    )
    assert list(Path.cwd().iterdir()) == []


def test_doctor_and_status_never_create_a_database(on_file: InProcess) -> None:
    sick = on_file.forge("doctor")
    assert sick.code == 1
    assert "forge db create" in sick.out
    assert on_file.forge("db", "status", "--json").data["current"] is None
    assert "run: forge db create" in on_file.forge("db", "status").out
    assert list(Path.cwd().iterdir()) == []


def test_create_migrate_drop_and_reset(on_file: InProcess) -> None:
    created = on_file.forge("db", "create", "--json").data
    assert created["result"] == "created"
    assert created["current"] == created["wanted"]
    assert on_file.forge("db", "migrate", "--json").data["result"] == "already up to date"
    assert on_file.forge("doctor").code == 0
    assert on_file.forge("enqueue", "send", "--queue", "mail").code == 0
    for command in ("drop", "reset"):
        refused = on_file.forge("db", command)
        assert refused.code == 2
        assert "repeat with --force" in refused.err
    assert len(on_file.forge("jobs", "list", "--json").data["jobs"]) == 1
    assert on_file.forge("db", "reset", "--force").code == 0
    assert on_file.forge("jobs", "list", "--json").data["jobs"] == []
    assert on_file.forge("db", "drop", "--force").out == "Dropped sqlite:///forge.db.\n"
    assert list(Path.cwd().glob("*.db*")) == []


def test_a_database_of_a_newer_release_is_not_touched(on_file: InProcess) -> None:
    on_file.forge("db", "create")
    with closing(sqlite3.connect("forge.db")) as connection, connection:
        connection.execute("INSERT INTO forge_schema VALUES (998, 'additive', 0, 0)")
    assert on_file.forge("jobs", "list").code == 0
    assert on_file.forge("db", "migrate").out.endswith("already up to date, schema version 998.\n")
    assert "newer than this release, and compatible" in on_file.forge("db", "status").out
    assert on_file.forge("db", "status", "--json").data["compatible"] == 1
    assert on_file.forge("doctor").code == 0
    with closing(sqlite3.connect("forge.db")) as connection, connection:
        connection.execute("INSERT INTO forge_schema VALUES (999, 'breaking', 0, 1)")
    for command in (["jobs", "list"], ["enqueue", "send"], ["db", "migrate"]):
        answer = on_file.forge(*command)
        assert answer.code == 1
        assert "999" in answer.err
        assert len(answer.err.splitlines()) == 1
    assert "upgrade forge-jobs" in on_file.forge("db", "status").out
    assert on_file.forge("doctor").code == 1


def test_an_unwritable_folder_is_a_one_line_error(on_file: InProcess, tmp_path: Path) -> None:
    on_file.url = f"sqlite:///{tmp_path}/nowhere/forge.db"
    answer = on_file.forge("enqueue", "send")
    assert answer.code == 1
    assert len(answer.err.strip().splitlines()) == 1
    assert "nowhere" in answer.err
