"""The backends of `django.tasks` in one Django project: ours, django-tasks-db, django-ox, djhuey.

Each is a process of its own interpreter, which has the newest Django (`make bench` makes it), on a
fresh database. Workers are run as their pages say, with 16 slots where they have slots.

Keeps: ours and django-tasks-db and django-ox every task as a row; djhuey the results. Acknowledges:
ours, django-tasks-db and django-ox after the function; djhuey by deleting the row before it, so a
killed worker loses the task.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import psycopg

from benchmarks import postgres
from benchmarks.processes import AgentError
from scripts import django_environments

PROJECT = Path(__file__).resolve().parents[1] / "django_project"
CALL_SECONDS = 120.0
OWN = "ours"


@dataclass(frozen=True, slots=True)
class Backend:
    """`unfinished`: a query for the number of tasks that wait or run."""

    label: str
    name: str
    worker: tuple[str, ...]
    unfinished: str


BACKENDS = (
    Backend(
        OWN,
        "forge",
        ("forge", "worker", "--queues", "default:16"),
        "SELECT count(*) FROM forge.jobs",
    ),
    Backend(
        "django-tasks-db",
        "django-tasks-db",
        ("db_worker", "--no-startup-delay"),
        "SELECT count(*) FROM django_tasks_database_dbtaskresult"
        " WHERE status IN ('READY', 'RUNNING')",
    ),
    Backend(
        "django-ox",
        "django-ox",
        ("ox_worker", "--concurrency", "16"),
        "SELECT count(*) FROM django_ox_oxtask WHERE status IN ('READY', 'RUNNING')",
    ),
    Backend("djhuey", "djhuey", ("run_huey", "-w", "16"), "SELECT count(*) FROM huey_task"),
)


def interpreter(*, quick: bool) -> Path | None:
    """The one with Django and the backends; None where there is none. A smoke run makes none."""
    minor = django_environments.newest_python()
    return None if minor is None else django_environments.bench_environment(minor, make=not quick)


class DjangoProject:
    """The project with one backend on the database of a store."""

    def __init__(self, python: Path, backend: Backend, store: Path) -> None:
        self.backend = backend
        self._python = python
        self._url = postgres.address(store)
        parts = urlsplit(self._url)
        query = parse_qs(parts.query)
        database = {
            "NAME": unquote(parts.path.lstrip("/")),
            "USER": parts.username,
            "HOST": query["host"][0],
            "PORT": query.get("port", ["5432"])[0],
        }
        self._environment = {
            **os.environ,
            "BENCH_BACKEND": backend.name,
            "BENCH_DATABASE": json.dumps(database),
        }
        self._log = store / "words.log"

    def call(self, *arguments: object) -> dict[str, Any]:
        """What `call.py` answers."""
        done = self._run("call.py", *map(str, arguments))
        return json.loads(done.splitlines()[-1])

    def migrate(self) -> None:
        """Create the tables of the backend."""
        self._run("manage.py", "migrate", "--verbosity", "0")

    def unfinished(self) -> int:
        """How many tasks wait or run."""
        with psycopg.connect(self._url, autocommit=True) as link:
            row = link.execute(self.backend.unfinished).fetchone()
        return 0 if row is None else int(row[0])

    @contextmanager
    def working(self) -> Iterator[None]:
        """A worker, ended with its children."""
        with self._log.open("ab") as words:
            process = subprocess.Popen(
                [self._python, "manage.py", *self.backend.worker],
                cwd=PROJECT,
                env=self._environment,
                stdout=words,
                stderr=words,
                start_new_session=True,
            )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._python, *arguments],
            cwd=PROJECT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=CALL_SECONDS,
            check=False,
        )
        if done.returncode:
            raise AgentError(f"{self.backend.label}: {arguments[0]}: {done.stderr[-1_000:]}")
        return done.stdout
