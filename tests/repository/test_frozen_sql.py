"""Migrations and function sets of a release do not change after it."""

from scripts import frozen_sql


def test_released_migrations_and_functions_are_unchanged() -> None:
    """If this fails, add a new migration (or raise the revision of the function set) instead.

    Only before the release itself may its record be written anew: python -m scripts.frozen_sql
    """
    frozen = frozen_sql.recorded()
    assert frozen, "no release is recorded: run python -m scripts.frozen_sql"
    assert frozen_sql.problems(frozen, frozen_sql.current()) == []


def test_a_changed_migration_asks_for_a_new_one() -> None:
    frozen = {"0.1.0": {"sqlite/migrations/0001_first.sql": "a"}}
    [problem] = frozen_sql.problems(frozen, {"sqlite/migrations/0001_first.sql": "b"})
    assert "add a new migration" in problem
    [problem] = frozen_sql.problems(frozen, {})
    assert "restore it" in problem
    added = {"sqlite/migrations/0001_first.sql": "a", "sqlite/migrations/0002_more.sql": "c"}
    assert frozen_sql.problems(frozen, added) == []


def test_a_changed_function_set_asks_for_a_new_revision() -> None:
    name = "postgres/functions/exchange_v1.sql revision"
    frozen = {"0.1.0": {f"{name} 1": "a"}}
    [problem] = frozen_sql.problems(frozen, {f"{name} 1": "b"})
    assert "raise its revision" in problem
    assert frozen_sql.problems(frozen, {f"{name} 2": "b"}) == []
    assert frozen_sql.problems(frozen, {}) == []
