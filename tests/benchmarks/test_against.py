"""`--against`: this tree and an earlier commit, measured in one run. No figure is looked at."""

import ast
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = {"forge_jobs", "forge_jobs.handlers", "forge_jobs.web"}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_each_row_compares_both_packages(tmp_path: Path) -> None:
    document = tmp_path / "figures.json"
    done = bench("--against", "HEAD", "--only", "drain,postgres-sync", "--json", str(document))
    assert done.returncode == 0, done.stdout + done.stderr
    measures = json.loads(document.read_text())["measures"]
    assert list(measures) == ["drain", "postgres-sync"]
    for measure in measures.values():
        assert [one["measured"] > 0 for one in measure["targets"]] == [True, True]
        assert {figure["system"] for figure in measure["figures"]} == {"this tree", "before"}


def test_a_commit_that_git_does_not_know_is_named() -> None:
    done = bench("--against", "no-such-commit")
    assert done.returncode == 2
    assert "--against: git knows no commit 'no-such-commit'" in done.stderr


def test_a_row_that_is_not_there_is_named() -> None:
    done = bench("--against", "HEAD", "--only", "drain,nothing")
    assert done.returncode == 2
    assert "no row nothing" in done.stderr


def test_the_benchmark_imports_public_modules_of_the_package_only() -> None:
    """It runs unchanged on an earlier commit, whose inner modules may have other names."""
    found: set[str] = set()
    for path in (ROOT / "benchmarks").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
    assert {name for name in found if name.split(".")[0] == "forge_jobs"} == PUBLIC
