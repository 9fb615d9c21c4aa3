"""What the tests of the SQLite backend share: a store on a file of its own, and child processes."""

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from forge_jobs.backends.sqlite.store import SqliteStore

CHILD = Path(__file__).parent / "child.py"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest_asyncio.fixture
async def store(path: Path) -> AsyncGenerator[SqliteStore, None]:
    opened = SqliteStore(path)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def start(project_root: Path) -> Iterator[Start]:
    """Start a child process that runs a function of ``child.py``."""
    children: list[subprocess.Popen[str]] = []

    def begin(part: str, *arguments: object) -> "subprocess.Popen[str]":
        child = subprocess.Popen(
            [sys.executable, str(CHILD), part, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ, PYTHONPATH=str(project_root / "src")),
        )
        children.append(child)
        return child

    yield begin
    for child in children:
        if child.poll() is None:
            psutil.Process(child.pid).resume()
            child.kill()
        child.communicate()


def read_line(child: "subprocess.Popen[str]") -> str:
    """The next line a child wrote."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def ended(child: "subprocess.Popen[str]") -> str:
    """Everything a child wrote until it ended well."""
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 0, output
    return output
