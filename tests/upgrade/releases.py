"""Makes releases that do not exist yet: copies of the package with patches.

``next_release`` has everything that an additive release may have: a migration that adds a column, a
newer revision of a function set that old processes call, a second version of that set which fills
the column, and a new option for jobs. ``breaking_release`` has a migration besides that older code
cannot live with. Most patches are new files or text behind a module, so that they depend on few
details of the code.
"""

import re
import shutil
from pathlib import Path
from typing import Final

import forge_jobs

CLAIMED_BY_NEXT: Final = "claimed by exchange_v2"
_SOURCE: Final = Path(forge_jobs.__file__).parent
_ADDITIVE: Final = "-- compatibility: additive\n"
_BREAKING: Final = "-- compatibility: breaking\n"

# The new option: note="text" is stored as a rare option, and handlers find it among the job's tags.
_TAKES_NOTE: Final = """
_JOB_NAMES = (*_JOB_NAMES, "note")
_RARE_OPTIONS["note"] = ("note", lambda name, value: value)
"""
_SHOWS_NOTE: Final = """
_known_of = JobInfo.of


def _of(job: ClaimedJob, tag: int) -> JobInfo:
    from dataclasses import replace

    info = _known_of(job, tag)
    note = (job.options or {}).get("note")
    return info if note is None else replace(info, tags=(*info.tags, "note:" + note))


JobInfo.of = staticmethod(_of)
"""


def next_release(folder: Path) -> Path:
    """A folder to put on PYTHONPATH."""
    package = _copy(folder)
    backends = package / "backends"
    column = "ALTER TABLE {} ADD COLUMN note text;\n"
    tables = (column.format("forge.jobs"), column.format("forge.history"))
    _add_migration(backends / "postgres", "note", _ADDITIVE + "".join(tables))
    _add_migration(backends / "sqlite", "note", _ADDITIVE + column.format("forge_jobs"))
    _patch_functions(backends / "postgres")
    _append(package / "client" / "options.py", _TAKES_NOTE)
    _append(package / "engine" / "running" / "context.py", _SHOWS_NOTE)
    return folder


def breaking_release(folder: Path) -> Path:
    """The release after it."""
    next_release(folder)
    backends = folder / "forge_jobs" / "backends"
    _add_migration(backends / "postgres", "break", _BREAKING + "CREATE TABLE forge.new (x text);\n")
    _add_migration(backends / "sqlite", "break", _BREAKING + "CREATE TABLE forge_new (x text);\n")
    return folder


def _copy(folder: Path) -> Path:
    package = folder / "forge_jobs"
    skipped = shutil.ignore_patterns("__pycache__", "static", "testing")
    shutil.copytree(_SOURCE, package, ignore=skipped)
    return package


def _add_migration(backend: Path, name: str, text: str) -> None:
    number = len(list((backend / "migrations").glob("0*.sql"))) + 1
    (backend / "migrations" / f"{number:04}_{name}.sql").write_text(text)


def _patch_functions(postgres: Path) -> None:
    """``exchange_v1`` learns to keep the new column when it moves a job to history; ``exchange_v2``
    writes it with every claim, and so does the ``claim_waiting_v2`` that calls it."""
    exchange = postgres / "functions" / "exchange_v1.sql"
    carrying = exchange.read_text()
    revision = re.search(r"^-- revision: (\d+)$", carrying, flags=re.MULTILINE)
    assert revision is not None
    for old, new in (
        (f"{revision[0]}\n", f"-- revision: {int(revision[1]) + 1}\n"),
        ("progress_note, result)", "progress_note, result, note)"),
        ("p_done_results[ordinal]\n", "p_done_results[ordinal], note\n"),
    ):
        carrying = _replaced(carrying, old, new)
    exchange.write_text(carrying)
    waiting = (postgres / "functions" / "claim_waiting_v1.sql").read_text()
    for name, text in (("exchange", carrying), ("claim_waiting", waiting)):
        second = re.sub(r"\b(exchange|claim_waiting)_v1\b", r"\1_v2", text)
        second = re.sub(r"^-- revision: \d+$", "-- revision: 1", second, flags=re.MULTILINE)
        running = "SET status = 'running',"
        second = _replaced(second, running, f"{running} note = '{CLAIMED_BY_NEXT}',")
        (postgres / "functions" / f"{name}_v2.sql").write_text(second)
    statements = postgres / "sql" / "jobs.sql"
    text = re.sub(r"\bforge\.(exchange|claim_waiting)_v1\b", r"forge.\1_v2", statements.read_text())
    statements.write_text(text)


def _replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
    return text.replace(old, new)


def _append(module: Path, text: str) -> None:
    module.write_text(module.read_text() + text)
