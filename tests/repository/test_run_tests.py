"""The runner of the suite: a second look for few, never a pass for a test that fails twice."""

import os
import subprocess
import sys
from pathlib import Path

RUNNER = Path(__file__).parents[2] / "scripts" / "run_tests.py"
FAILS_ONCE = """
from pathlib import Path

def test_unsteady():
    seen = Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""


def run(folder: Path, text: str) -> tuple[int, str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(text)
    # The project's many plugins take longer to load than these tests to run.
    plain = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(
        [sys.executable, str(RUNNER), "-q"],
        cwd=folder,
        env=plain,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout


def test_a_test_that_passes_alone_is_named(tmp_path: Path) -> None:
    code, said = run(tmp_path, FAILS_ONCE)
    assert code == 0
    assert "assert not first" in said
    assert "UNSTEADY" in said
    assert said.rstrip().endswith("test_it.py::test_unsteady")


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    code, said = run(tmp_path, "def test_broken():\n    assert False\n")
    assert code == 1
    assert said.count("FAILED test_it.py::test_broken") == 2
    assert "UNSTEADY" not in said


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    text = "".join(f"def test_{n}():\n    assert False\n\n" for n in range(4))
    code, said = run(tmp_path, text)
    assert code == 1
    assert "4 failed: at most 2 get a second look." in said
    assert said.count("FAILED test_it.py::test_0") == 1


def fails_once(count: int) -> str:
    """So many tests that fail once, each by a file of its own."""
    return "".join(
        FAILS_ONCE.replace('"seen"', f'"seen{n}"').replace("unsteady", f"unsteady_{n}")
        for n in range(count)
    )


def test_u20_a_third_unsteady_test_fails_the_run(tmp_path: Path) -> None:
    three = fails_once(3)
    assert run(tmp_path, three)[0] == 1
    for left in tmp_path.glob("seen*"):
        left.unlink()
    two = fails_once(2)
    code, said = run(tmp_path, two)
    assert code == 0
    assert "UNSTEADY: 2 failed once and passed alone" in said


def test_what_is_no_failed_test_is_passed_on(tmp_path: Path) -> None:
    code, said = run(tmp_path, "def broken(:\n")
    assert code == 2
    assert "second look" not in said


def test_a_green_run_says_nothing_more(tmp_path: Path) -> None:
    code, said = run(tmp_path, "def test_fine():\n    pass\n")
    assert code == 0
    assert said.rstrip().splitlines()[-1].startswith("1 passed")
