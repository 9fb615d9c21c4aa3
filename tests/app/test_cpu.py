"""Tasks in child processes: found again by module, or by the file that was run."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

APP = """
import asyncio, os, sys
from forge_jobs import Context, Forge

forge = Forge("memory://")

@forge.task(cpu=True)
def square(n: int, ctx: Context) -> list[int]:
    ctx.log.info("squaring")
    return [n * n, os.getpid()]

async def main() -> None:
    async with forge.worker(queues=["default"]):
        job = await square.aenqueue(12)
        value, pid = await job.aresult(timeout=60)
        lines = [line.message for line in await job.alogs()]
        print(value, pid != os.getpid(), lines)
    await forge.aclose()

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    "command",
    [
        ["app.py"],
        ["-m", "app"],
        ["-m", "package.inner"],
        ["-c", "import asyncio, app; asyncio.run(app.main())"],
    ],
)
def test_a_child_process_runs_it(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(textwrap.dedent(APP))
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "inner.py").write_text(textwrap.dedent(APP))
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "144 True ['squaring']\n", done.stderr
