"""The test project's own tests, with the test runner of Django."""

import pytest

from tests.django.conftest import CHOSEN, MakeProject
from tests.django.databases import Project


def passed(output: str) -> int:
    """How many tests passed, of a run without failures."""
    assert "\nOK" in output, output
    return int(output.partition("\nRan ")[2].split()[0])


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_project_passes(project: MakeProject, database: str) -> None:
    output = project(database).manage("test", "--pattern", "tests_*.py")
    assert passed(output) >= 20


@pytest.mark.slow
def test_the_project_passes_with_psycopg2(project: MakeProject) -> None:
    made = project("postgres", TEST_DRIVER="psycopg2")
    assert passed(made.manage("test", "--pattern", "tests_transactions.py")) >= 7


@pytest.mark.slow
def test_the_project_passes_with_a_pool(project: MakeProject) -> None:
    made = project("postgres")
    pooled = {**made.database, "OPTIONS": {"pool": {"min_size": 1, "max_size": 4, "timeout": 10}}}
    made = Project(made.python, pooled, made.variables)
    assert passed(made.manage("test", "--pattern", "tests_transactions.py")) >= 7


@pytest.mark.slow
@pytest.mark.skipif(CHOSEN is not None, reason="another version was asked for")
def test_the_project_passes_on_the_newest_django(project: MakeProject) -> None:
    output = project("postgres", newest=True).manage("test", "--pattern", "tests_*.py")
    assert passed(output) >= 20
