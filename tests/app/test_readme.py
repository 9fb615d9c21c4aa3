"""The README's first example works exactly as printed."""

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import BadArguments, Context, Forge, JobStatus, testing


@pytest.fixture
def readme(project_root: Path) -> str:
    return (project_root / "README.md").read_text()


def first_block(readme: str, language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", readme, re.M | re.S)
    assert found is not None
    return found.group(1)


def test_the_first_example_prints_what_it_says(readme: str, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(first_block(readme, "python"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "hello.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    shown = re.search(r"^```\n\$ python hello\.py\n(.*?)^```$", readme, re.M | re.S)
    assert shown is not None
    assert done.stdout == shown.group(1)
    assert done.stderr == ""
    connection = sqlite3.connect(tmp_path / "forge.db")
    (check,) = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    assert check == "ok"


def test_the_example_folder_holds_the_same(readme: str, project_root: Path) -> None:
    example = project_root / "examples" / "quickstart" / "hello.py"
    assert example.read_text() == first_block(readme, "python")


def test_a_killed_process_leaves_its_jobs_to_the_next(readme: str, tmp_path: Path) -> None:
    text = first_block(readme, "python")
    (tmp_path / "hello.py").write_text(text)
    killer = (
        "import asyncio, os, signal, hello\n"
        "asyncio.run(hello.greet.aenqueue_many([('Alan',)]))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", killer], cwd=tmp_path, timeout=60, check=False, env=dict(os.environ)
    )
    assert killed.returncode < 0
    follower = (
        "import asyncio, hello\nreport = asyncio.run(hello.forge.drain())\nprint(report.done)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", follower],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ),
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_the_refusal_the_readme_mentions(forge: Forge) -> None:
    @forge.task
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    with pytest.raises(BadArguments, match="argument 'name' must be str"):
        greet.enqueue(42)  # type: ignore[arg-type]


def test_the_workflow_runs_as_it_says(readme: str) -> None:
    found = re.search(
        r"^```python\n(@forge\.task\(queue=\"orders\"\).*?)^```$", readme, re.M | re.S
    )
    assert found is not None
    forge = Forge("memory://")
    charges: list[int] = []

    async def charge_card(order: int) -> str:
        charges.append(order)
        return f"ch_{order}"

    names: dict[str, Any] = {"forge": forge, "Context": Context, "charge_card": charge_card}
    exec(found.group(1), names)  # noqa: S102  (the text is ours)
    job = names["fulfil"].enqueue(42)
    with testing.frozen(forge) as time:
        forge.drain().run()
        time.advance("2h")
        forge.drain().run()
        assert job.refresh().status is JobStatus.SUSPENDED
        forge.send("paid", {"cents": 5}, key=42)
        forge.drain().run()
    assert job.result(timeout=1) == "ch_42 {'cents': 5}"
    assert charges == [42]
    forge.close()
