"""Runs the examples by the command that each one names in its header."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE_S = 60


@dataclass(frozen=True)
class Printed:
    """What an example wrote before it ended."""

    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def named_command(name: str) -> str:
    """The command after ``Run:`` in the docstring of an example."""
    found = re.search(r'Run: (.+?)(?:"""|$)', (EXAMPLES / name).read_text(), re.M)
    assert found is not None, f"examples/{name} does not say how it is run"
    return found.group(1)


def argv(command: str) -> list[str]:
    """The command as this machine runs it from any folder, with warnings as errors."""
    words = [word for word in shlex.split(command) if not word.startswith("FORGE_URL=")]
    program, *rest = [word.replace("examples", str(EXAMPLES), 1) for word in words]
    module = [] if program == "python" else ["-m", program.replace("-", "_")]
    return [sys.executable, *(["-W", "error"] if not module else []), *module, *rest]


def run(name: str, folder: Path, **environment: str) -> Printed:
    """Run an example in an empty folder; fails unless it ends well."""
    done = subprocess.run(
        argv(named_command(name)),
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Jobs that fail on purpose are logged with their traceback; nothing else may have one.
    for before, line in pairwise(["", *done.stderr.splitlines()]):
        assert not line.startswith("Traceback") or before.startswith("job "), done.stderr
    return Printed(done.stdout, done.stderr)
