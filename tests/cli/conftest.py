"""Fixtures of the CLI tests: a real shell in a folder, and commands inside the test's process."""

import asyncio
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from forge_jobs.backends.url import open_store
from forge_jobs.cli.commands import run
from forge_jobs.kit.clock import SYSTEM_CLOCK
from tests.cli.shell import Shell
from tests.ops.harness import StoreHarness

_NUMBERS = itertools.count(1)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    sample = Path(__file__).with_name("sample_app.py")
    (tmp_path / "sample_app.py").write_text(sample.read_text())
    return Shell(tmp_path)


@dataclass
class CommandResult:
    """The output and the exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@dataclass
class InProcess:
    """Runs commands inside the test's process, on one store."""

    url: str
    capsys: pytest.CaptureFixture[str]

    def forge(self, *words: str) -> CommandResult:
        self.capsys.readouterr()
        code = run([*words, "--url", self.url])
        captured = self.capsys.readouterr()
        return CommandResult(code, captured.out, captured.err)

    def fill(self, work: Callable[[StoreHarness], Any]) -> Any:
        """Change jobs directly in the store before a command reads them."""
        harness = StoreHarness(open_store(self.url), SYSTEM_CLOCK)  # type: ignore[arg-type]
        return asyncio.run(work(harness))


@pytest.fixture
def in_process(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> InProcess:
    monkeypatch.setenv("COLUMNS", "80")
    return InProcess(f"memory://cli-{next(_NUMBERS)}", capsys)


@pytest.fixture
def on_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> InProcess:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return InProcess("sqlite:///forge.db", capsys)
