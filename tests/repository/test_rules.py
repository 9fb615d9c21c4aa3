"""The import rule and the clock rule bite: a package that breaks them, in each way, is refused."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


@pytest.fixture
def house(project_root: Path, tmp_path: Path) -> Path:
    """A tiny package with every room, under the project's own contracts."""
    (tmp_path / "pyproject.toml").write_text((project_root / "pyproject.toml").read_text())
    (tmp_path / "scripts").mkdir()
    contracts = project_root / "scripts" / "import_contracts.py"
    (tmp_path / "scripts" / "import_contracts.py").write_text(contracts.read_text())
    rooms = ["", "core", "kit", "store", "client", "engine", "ops", "handlers", "cli", "web"]
    rooms += ["testing", "backends", "backends/memory", "backends/sqlite", "engine/claiming"]
    rooms += ["engine/running"]
    for room in rooms:
        folder = tmp_path / "src" / "forge_jobs" / room
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
    for module in [
        "app.py",
        "config.py",
        "engine/running/context.py",
        "engine/claiming/exchange_loop.py",
    ]:
        (tmp_path / "src" / "forge_jobs" / module).touch()
    (tmp_path / "src" / "telegram_gateway").mkdir()
    (tmp_path / "src" / "telegram_gateway" / "__init__.py").touch()
    return tmp_path


def lint_imports(house: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(house / "src")}
    return subprocess.run(
        [str(BIN / "lint-imports"), "--no-cache", "--no-logo"],
        cwd=house,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_allowed_imports_pass(house: Path) -> None:
    package = house / "src" / "forge_jobs"
    (package / "__init__.py").write_text("from forge_jobs import app, core\n")
    (package / "app.py").write_text("from forge_jobs.backends import sqlite\n")
    (package / "handlers" / "__init__.py").write_text(
        "from forge_jobs.engine.running import context\n"
    )
    (package / "engine" / "claiming" / "exchange_loop.py").write_text(
        "from forge_jobs import store, core, kit\n"
    )
    (package / "cli" / "__init__.py").write_text("from forge_jobs import app, ops\n")
    (package / "testing" / "__init__.py").write_text("from forge_jobs import app, engine\n")
    done = lint_imports(house)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("core/__init__.py", "forge_jobs.kit"),
        ("core/__init__.py", "asyncio"),
        ("core/__init__.py", "time"),
        ("kit/__init__.py", "forge_jobs.core"),
        ("store/__init__.py", "forge_jobs.engine"),
        ("engine/claiming/exchange_loop.py", "forge_jobs.client"),
        ("engine/claiming/exchange_loop.py", "forge_jobs.backends.sqlite"),
        ("ops/__init__.py", "forge_jobs.app"),
        ("client/__init__.py", "forge_jobs.app"),
        ("client/__init__.py", "forge_jobs.testing"),
        ("backends/sqlite/__init__.py", "forge_jobs.backends.memory"),
        ("handlers/__init__.py", "forge_jobs.engine.claiming.exchange_loop"),
        ("handlers/__init__.py", "forge_jobs.store"),
        ("cli/__init__.py", "forge_jobs.engine"),
        ("web/__init__.py", "forge_jobs.backends.sqlite"),
        ("__init__.py", "forge_jobs.testing"),
        ("core/__init__.py", "telegram_gateway"),
        ("../telegram_gateway/door.py", "forge_jobs.engine"),
        ("../telegram_gateway/door.py", "forge_jobs.kit.clock"),
        ("helpers.py", "forge_jobs.core"),
    ],
)
def test_a_forbidden_import_is_refused(house: Path, importer: str, imported: str) -> None:
    (house / "src" / "forge_jobs" / importer).write_text(f"import {imported}\n")
    done = lint_imports(house)
    assert done.returncode == 1, done.stdout
    assert "BROKEN" in done.stdout


def test_there_are_no_exceptions_to_the_import_rule(project_root: Path) -> None:
    assert not re.search(r"^\s*ignore_imports", (project_root / "pyproject.toml").read_text(), re.M)


def banned(house: Path, path: str, code: str) -> bool:
    target = house / "src" / "forge_jobs" / path
    target.write_text(code)
    done = subprocess.run(
        [str(BIN / "ruff"), "check", "--no-cache", "--select", "TID251", str(target)],
        cwd=house,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return "TID251" in done.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import time\ntime.time()\n",
        "from time import monotonic\n",
        "import time as t\nt.sleep(1)\n",
        "import asyncio\nasyncio.sleep(1)\n",
        "from datetime import datetime\ndatetime.now()\n",
        "from datetime import date\ndate.today()\n",
        "import random\n",
        "from secrets import token_hex\n",
        "import uuid\nuuid.uuid4()\n",
        "import os\nos.urandom(8)\n",
        "import threading\nthreading.Timer(1, print)\n",
        "import pickle\n",
    ],
)
def test_time_and_chance_enter_through_kit_alone(house: Path, code: str) -> None:
    assert banned(house, "engine/claiming/exchange_loop.py", code)


@pytest.mark.parametrize("path", ["kit/clock.py", "kit/entropy.py"])
def test_kit_itself_may_read_them(house: Path, path: str) -> None:
    assert not banned(house, path, "import random\nimport time\ntime.time()\n")
