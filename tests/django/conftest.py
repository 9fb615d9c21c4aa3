"""The test project on the databases and versions of Django that are asked for.

TEST_DJANGO="6.0 3.12" chooses a version of Django and of Python (make matrix). Otherwise the
project runs on the Django of this environment, and on the newest Django, where this machine has a
Python for it, on Postgres.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import django_environments
from tests.django import databases
from tests.django.databases import Project
from tests.postgres.server import PrivateServer

CHOSEN = os.environ.get("TEST_DJANGO")
MakeProject = Callable[..., Project]


def interpreter() -> Path:
    """The interpreter with the Django to test."""
    if CHOSEN is None:
        return Path(sys.executable)
    return django_environments.environment(*CHOSEN.split())


def newest_interpreter() -> Path:
    """The interpreter with the newest Django; skips the test where there can be none."""
    if CHOSEN is not None:
        return interpreter()
    python = django_environments.newest_python()
    if python is None:
        needed = " or ".join(django_environments.PYTHONS)
        pytest.skip(f"the newest Django needs Python {needed}, which is not here")
    return django_environments.environment(django_environments.DJANGOS[-1], python)


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> MakeProject:
    """Makes the project on ``sqlite`` or ``postgres``; ``newest`` with the newest Django."""

    def make(database: str, *, newest: bool = False, **variables: str) -> Project:
        if database == "sqlite":
            settings = databases.sqlite(tmp_path)
        else:
            server: PrivateServer = request.getfixturevalue("postgres")
            name = f"django_{tmp_path.name.replace('-', '_').lower()[-40:]}"
            server.sql(f'CREATE DATABASE "{name}"')
            settings = databases.postgres(server, name)
        python = newest_interpreter() if newest else interpreter()
        return Project(python, settings, variables)

    return make
