"""The script in the documentation works exactly as printed, with nothing else running."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def page(project_root: Path) -> str:
    return (project_root / "docs" / "pull.md").read_text()


def block(page: str, pattern: str) -> str:
    found = re.search(pattern, page, re.M | re.S)
    assert found is not None
    return found.group(1)


def test_the_script_prints_what_the_page_says(page: str, tmp_path: Path) -> None:
    script = tmp_path / "pull_queue.py"
    script.write_text(block(page, r"^```python\n(.*?)^```$"))
    done = subprocess.run(
        [sys.executable, "-W", "error", script.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == block(page, r"^```\n\$ python pull_queue\.py\n(.*?)^```$")


def test_the_example_folder_holds_the_same_script(page: str, project_root: Path) -> None:
    example = (project_root / "examples" / "pull_queue.py").read_text()
    assert example == block(page, r"^```python\n(.*?)^```$")
