"""A folder with a sample application and a shell in it; a named store for the quick tests."""

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
class Answer:
    """What a command said and how it left."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@dataclass
class Here:
    """Commands run inside the test's process, on a named memory store."""

    url: str
    capsys: pytest.CaptureFixture[str]

    def forge(self, *words: str) -> Answer:
        self.capsys.readouterr()
        code = run([*words, "--url", self.url])
        said = self.capsys.readouterr()
        return Answer(code, said.out, said.err)

    def fill(self, work: Callable[[StoreHarness], Any]) -> Any:
        """Move jobs by hand before a command looks at them."""
        harness = StoreHarness(open_store(self.url), SYSTEM_CLOCK)  # type: ignore[arg-type]
        return asyncio.run(work(harness))


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.setenv("COLUMNS", "80")
    return Here(f"memory://cli-{next(_NUMBERS)}", capsys)


@pytest.fixture
def on_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Here:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return Here("sqlite:///forge.db", capsys)
