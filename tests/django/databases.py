"""Databases of the test project, as the environment variable TEST_DATABASE passes them."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.postgres.server import PrivateServer

PROJECT = Path(__file__).parent / "project"


@dataclass(frozen=True)
class Project:
    """The test project with one interpreter, which has its Django, on one database."""

    python: Path
    database: Mapping[str, Any]
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONPATH": str(PROJECT),
            "PYTHONWARNINGS": "error",
            "TEST_DATABASE": json.dumps(self.database),
            **self.variables,
        }

    def manage(self, *arguments: str, check: bool = True) -> str:
        """The output of a command of manage.py."""
        done = subprocess.run(
            [self.python, "manage.py", *arguments],
            cwd=PROJECT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """A command that goes on, as a process group of its own."""
        return subprocess.Popen(
            [self.python, "manage.py", *arguments],
            cwd=PROJECT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def sqlite(folder: Path, **more: Any) -> dict[str, Any]:
    """A file in a folder; the test database is another one beside it."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": f"{folder}/project.db",
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
        "TEST": {"NAME": f"{folder}/test.db"},
        **more,
    }


def postgres(server: PrivateServer, name: str, **more: Any) -> dict[str, Any]:
    """A database of the private server."""
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": "postgres",
        "HOST": str(server.folder),
        "PORT": server.port,
        "TEST": {"NAME": f"test_{name}"},
        **more,
    }
