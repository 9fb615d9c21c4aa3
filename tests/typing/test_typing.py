"""The public interface under pyright: good calls pass, bad calls are refused where they stand."""

import inspect
import json
import pydoc
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forge_jobs import Forge
from forge_jobs.client.options import TaskOptions

# The samples, each with the least number of lines that must be refused.
SAMPLES = {"sample.py": 14, "verbs.py": 14, "steps.py": 9}
PYRIGHT = Path(sys.executable).parent / "pyright"


def complaints(path: Path, project_root: Path, folder: Path) -> dict[int, str]:
    """The errors of pyright, strict, by line."""
    shutil.copy(path, folder / path.name)
    settings = folder / "pyrightconfig.json"
    settings.write_text(
        json.dumps(
            {
                "include": [path.name],
                "strict": [path.name],
                "extraPaths": [str(project_root / "src")],
                "pythonVersion": "3.11",
                "reportMissingTypeStubs": False,
            }
        )
    )
    done = subprocess.run(
        [str(PYRIGHT), "--outputjson", "--pythonpath", sys.executable, "-p", str(settings)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=folder,
    )
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1, done.stdout
    found: dict[int, str] = {}
    for item in report["generalDiagnostics"]:
        line = item["range"]["start"]["line"] + 1
        found[line] = found.get(line, "") + item["message"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_u18_calls_are_typed_by_the_function(name: str, project_root: Path, tmp_path: Path) -> None:
    sample = Path(__file__).parent / name
    found = complaints(sample, project_root, tmp_path)
    expected = {
        number: mark.group(1)
        for number, line in enumerate(sample.read_text().splitlines(), 1)
        if (mark := re.search(r"# wrong: (.+)$", line))
    }
    assert len(expected) >= SAMPLES[name]
    unexpected = {line: text for line, text in found.items() if line not in expected}
    assert not unexpected
    for line, text in expected.items():
        assert text in found.get(line, ""), f"line {line} was not refused with {text!r}"


def test_u18_help_shows_the_options_of_a_task() -> None:
    shown = str(inspect.signature(Forge("memory://").task))
    assert "queue: str = ..." in shown
    assert "max_attempts: int = ..." in shown
    assert "Any" not in shown
    assert set(inspect.signature(Forge("memory://").task).parameters) == {
        "function",
        *TaskOptions.__annotations__,
    }
    text = pydoc.render_doc(Forge("memory://").task, renderer=pydoc.plaintext)
    assert "``max_attempts``: attempts before a job is dead" in text
    assert "**options" not in text
