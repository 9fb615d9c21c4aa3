"""SQL as text: every block named, explained and alone; migrations without gaps."""

import sqlite3
from pathlib import Path

import pytest

from forge_jobs.backends.shared import migrations
from forge_jobs.backends.shared.sql_text import SqlText, ordered_values
from forge_jobs.backends.sqlite import schema


def test_blocks_by_name_without_comments() -> None:
    text = SqlText("x.sql", "-- a file\n\n-- name: one\n-- Why.\nSELECT  1 -- so\n  , 2;\n")
    assert dict(text) == {"one": "SELECT  1 , 2"}
    with pytest.raises(LookupError, match="no statement named 'two'"):
        text["two"]


def test_numbered_placeholders_become_plain_ones_with_their_values_in_order() -> None:
    text = SqlText(
        "x.sql", "-- name: a\n-- Why.\nSELECT ?2, ?1, ?2;\n-- name: b\n-- B.\nSELECT ?1, ?2;"
    )
    assert text["a"] == "SELECT ?, ?, ?"
    assert ordered_values(text["a"], ("x", "y")) == ["y", "x", "y"]
    assert ordered_values(text["b"], ("x", "y")) == ("x", "y")
    with pytest.raises(ValueError, match="order of their values alone"):
        SqlText("y.sql", "-- name: c\n-- Why.\nSELECT ?2, ?1;")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("SELECT 1;\n-- name: a\n-- Why.\nSELECT 1;", "before its first name"),
        ("-- name: A b\n-- Why.\nSELECT 1;", "bad name line"),
        ("-- name: a\n-- Why.\nSELECT 1;\n-- name: a\n-- Why.\nSELECT 2;", "two statements"),
        ("-- name: a\nSELECT 1;", "does not say why"),
        ("-- name: a\n-- Why.\nSELECT 1", "one statement that ends with"),
        ("-- name: a\n-- Why.\nSELECT 1; SELECT 2;", "one statement"),
    ],
)
def test_malformed_files_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        SqlText("x.sql", text)


def test_migrations_are_numbered_without_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [step.number for step in schema.MIGRATIONS] == list(range(1, schema.WANTED + 1))
    package = tmp_path / "some_migrations"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    (package / "0001_one.sql").write_text("SELECT 1;")
    (package / "0003_three.sql").write_text("-- compatibility: additive\nSELECT 3;")
    with pytest.raises(ValueError, match="not numbered 1, 2, 3"):
        migrations.load("some_migrations")
    (package / "0002_two.sql").write_text("-- compatibility: breaking\nSELECT 2;")
    assert [step.name for step in migrations.load("some_migrations")] == ["one", "two", "three"]


def test_every_table_has_our_prefix(tmp_path: Path) -> None:
    connection = sqlite3.connect(":memory:")
    for step in schema.MIGRATIONS:
        connection.executescript(step.text)
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"
    ).fetchall()
    connection.close()
    assert len(names) > 20
    assert all(name.startswith("forge_") for (name,) in names)
