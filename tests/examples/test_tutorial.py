"""The code of docs/tutorial.md: shop.py and its tests, as a reader saves them."""

import os
import re
import subprocess
import sys
from pathlib import Path

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^(<!-- not run: .*-->\n)?```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def save_tutorial(folder: Path) -> None:
    """The program of the tutorial and its tests."""
    blocks = BLOCK.findall(TUTORIAL.read_text(encoding="utf-8"))
    (folder / "shop.py").write_text("\n\n".join(code for mark, code in blocks if not mark))
    (folder / "test_shop.py").write_text("".join(code for mark, code in blocks if mark))


def test_the_tests_of_the_tutorial_pass(tmp_path: Path) -> None:
    save_tutorial(tmp_path)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("FORGE_URL", "DATABASE_URL")
    }
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "."],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "3 passed" in answer.stdout
