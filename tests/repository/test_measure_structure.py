"""The measurement of the structure: it counts what it says, on any commit, whatever the names."""

import inspect
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forge_jobs
from scripts import measure_structure, retired_words
from scripts.structure import shape, way

CONTRACT = """
from typing import Protocol

class JobStore(Protocol):
    @property
    def name(self) -> str: ...
    async def exchange(self) -> None: ...
    def enqueue(self) -> None: ...



class Row:
    def method(self) -> None: ...
"""
PLANTED = """
if True:
    def take_lot(): ...

def remove_slot():
    def pour(): ...

class _PumpState:
    def settle(self): ...

class Row: ...
"""


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A small tree with one of everything that is counted."""
    files = {
        "src/forge_jobs/store/jobs.py": CONTRACT,
        "src/forge_jobs/engine/ledger.py": PLANTED,
        "src/forge_jobs/engine/watch.py": "class _Row: ...\n",
        "src/forge_jobs/engine/loop_watch.py": "class Job: ...\n",
        "src/forge_jobs/pull/job.py": "class Job: ...\n",
        "src/forge_jobs/backends/doubt/rows.py": "class Row: ...\n",
        "src/forge_jobs/backends/rows.sql": "CREATE FUNCTION forge.settle(a int)\n",
        "src/forge_jobs/testing/long.py": "\n" * 1000,
        "tests/keyvalue_store/store.py": "a = 1\nb = 2\n",
        "tests/test_it.py": "def test_at_most_one(): ...\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def function(code: Callable[..., Any], source: Path) -> way.Function:
    """A function as the trace names it."""
    file = Path(inspect.getfile(code)).relative_to(source).as_posix()
    return file, code.__qualname__


def test_retired_names_are_found_by_their_parts(planted: Path) -> None:
    found = measure_structure.static("planted", planted).retired
    named = {(one.file.rsplit("/", 1)[1], one.line, one.name) for one in found["src/forge_jobs"]}
    assert named == {
        ("doubt", 1, "doubt"),
        ("ledger.py", 1, "ledger"),
        ("ledger.py", 3, "take_lot"),
        ("ledger.py", 8, "_PumpState"),
        ("watch.py", 1, "watch"),
        ("rows.sql", 1, "settle"),
    }
    assert [(one.kind, one.instead) for one in found["tests"]] == [("test function", "max")]


def test_a_word_belongs_to_one_line_of_the_glossary() -> None:
    words = [word for words in retired_words.INSTEAD.values() for word in words]
    assert len(words) == len(set(words))
    assert not [name for name in forge_jobs.__all__ if retired_words.retired_part(name)]


def test_contracts_sizes_and_doubled_names(planted: Path) -> None:
    measured = measure_structure.static("planted", planted)
    assert measured.contracts.classes == {"JobStore": shape.Contract("store/jobs.py", 2, 1)}
    # Row and _Row are one name; backends and the two names of pull do not count.
    assert list(measured.doubled) == ["Row"]
    assert len(measured.doubled["Row"]) == 3
    assert measured.sizes.longest_python_file == shape.Longest(
        "store/jobs.py", len(CONTRACT.splitlines())
    )
    assert (measured.sizes.python_files, measured.sizes.sql_lines) == (6, 1)
    assert measured.test_store_lines == 2


def test_two_commits_make_two_columns(
    planted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *arguments], cwd=planted, check=True, capture_output=True)

    git("init", "--initial-branch=main")
    git("add", ".")
    git("commit", "-m", "Before")
    git("mv", "src/forge_jobs/engine/watch.py", "src/forge_jobs/engine/deadlines.py")
    git("commit", "-m", "After")
    monkeypatch.setattr(measure_structure, "ROOT", planted)
    assert measure_structure.main(["--commit", "main~1", "--commit", "main", "--no-trace"]) == 0
    printed = capsys.readouterr().out
    lines = {line.split("|")[1].strip(): line.split("|")[2:4] for line in printed.splitlines()}
    assert [cell.strip() for cell in lines["retired words in src/forge_jobs"]] == ["6", "5"]
    assert [cell.strip() for cell in lines["test store, lines"]] == ["2", "2"]
    assert measure_structure.main(["--commit", "no-such-commit", "--no-trace"]) == 1
    assert "no-such-commit" in capsys.readouterr().err


def test_the_working_tree_keeps_its_bounds(project_root: Path) -> None:
    measured = measure_structure.static("here", project_root)
    assert measured.sizes.longest_python_file.lines <= 400
    assert measured.sizes.longest_function.lines <= 60
    assert measured.sizes.python_lines > 10_000
    assert measured.contracts.methods > 20
    assert len(dict(measure_structure.rows(measured))) > 15


def test_what_runs_anyway_is_not_on_the_way() -> None:
    job, helper, loop = ("d.py", "enqueue"), ("a.py", "helper"), ("c.py", "poll")
    service, slow = ("b.py", "tick"), ("e.py", "late")
    usual = frozenset({job, helper, loop})
    told = way.way(
        jobs=[usual, usual | {service}, usual, usual | {slow}, usual | {slow}, usual | {slow}],
        idle=[frozenset({loop}), frozenset({loop, service, helper}), *[frozenset({loop})] * 4],
        seconds=[0.01, 0.02, 0.01, 0.02, 0.2, 0.2],
    )
    assert told.on_the_way == {job, helper}
    assert told.seen == {job, helper, loop, service, slow}


def test_a_job_is_traced_from_enqueue_to_result(project_root: Path, tmp_path: Path) -> None:
    source = project_root / "src"
    told = way.traced(source, f"sqlite:///{tmp_path}/jobs.db", windows=5)
    for public in (forge_jobs.AsyncTask.enqueue, forge_jobs.Job.result):
        assert function(public, source) in told.on_the_way
    # Start-up ended before the first window, and the record was not requested.
    for other in (forge_jobs.Forge.worker, forge_jobs.Job.refresh):
        assert function(other, source) not in told.seen
    folders = shape.by_folder(told.files)
    assert {"client", "engine", "backends/sqlite"} <= {
        folder if folder.startswith("backends") else folder.split("/")[0] for folder in folders
    }
    assert not [folder for folder in folders if "postgres" in folder or "services" in folder]
    assert 10 < len(told.files) < 100
