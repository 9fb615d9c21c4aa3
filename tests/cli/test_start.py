"""What a command imports when it starts: its own modules, and no library that it does not need."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import typer

from forge_jobs.cli.commands import COMMANDS, run, tree

# Libraries of servers and other stores, other commands, and what only they need.
HEAVY = (
    "aiosqlite", "anyio", "asyncpg", "httpx", "jinja2", "opentelemetry", "psycopg", "pydantic",
    "sqlalchemy", "starlette", "uvicorn", "uvloop",
    "forge_jobs.backends.memory", "forge_jobs.backends.postgres", "forge_jobs.cli.audit",
    "forge_jobs.cli.cron", "forge_jobs.cli.database", "forge_jobs.cli.demo", "forge_jobs.cli.dev",
    "forge_jobs.cli.health", "forge_jobs.cli.limits", "forge_jobs.cli.queues", "forge_jobs.cli.web",
    "forge_jobs.cli.worker_child", "forge_jobs.handlers", "forge_jobs.testing", "forge_jobs.web",
)  # fmt: skip
HEAVY_FOR_PARENT = ("msgspec", "rich", "sqlite3", "typer")
HEAVY_FOR_WORKER = tuple(
    name for name in HEAVY if name not in ("forge_jobs.cli.worker_child", "forge_jobs.handlers")
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def imported(program: str, url: str) -> set[str]:
    """The modules of a fresh interpreter after this program."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\nprint('imported', *sys.modules)"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "FORGE_URL": url},
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


def found(heavy: Iterable[str], modules: set[str]) -> list[str]:
    return [name for name in heavy if any(f"{one}.".startswith(f"{name}.") for one in modules)]


def test_forge_jobs_list_imports_no_other_command_and_no_server(path: Path) -> None:
    url = f"sqlite:///{path}"
    assert run(["db", "create", "--url", url]) == 0
    program = "from forge_jobs.cli.commands import run\nassert run(['jobs', 'list']) == 0"
    modules = imported(program, url)
    assert {"forge_jobs.cli.jobs", "forge_jobs.backends.sqlite.store"} <= modules
    assert found(HEAVY, modules) == []


def test_the_parent_of_workers_imports_the_standard_library_only(path: Path) -> None:
    modules = imported("import forge_jobs.cli.main, forge_jobs.cli.worker", f"sqlite:///{path}")
    assert "forge_jobs.cli.worker_parent" in modules
    assert found((*HEAVY, *HEAVY_FOR_PARENT), modules) == []


def test_a_worker_process_imports_no_terminal_and_no_server(path: Path) -> None:
    program = (
        "import forge_jobs.cli.worker_child, asyncio\n"
        "from forge_jobs import Forge\n"
        "async def main():\n"
        "    async with Forge() as forge, forge.worker(queues=['q']): pass\n"
        "asyncio.run(main())"
    )
    modules = imported(program, f"sqlite:///{path}")
    assert found((*HEAVY_FOR_WORKER, "typer", "rich"), modules) == []


def test_every_command_is_in_the_tree_alone_and_among_all() -> None:
    names = [name for name, *_ in COMMANDS]
    everything: Any = typer.main.get_command(tree())
    assert sorted(everything.commands) == sorted(names)
    for name in names:
        alone: Any = typer.main.get_command(tree(name))
        assert list(alone.commands) == [name]
        assert len(alone.commands[name].params) == len(everything.commands[name].params)
