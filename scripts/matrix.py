"""Run the tests on every supported version, one after the other: ``make matrix``.

Each supported Postgres with the Python of this environment, then each other supported Python with
the newest Postgres, then the Django project of the tests on each Django and Python, on SQLite and
the newest Postgres. Arguments choose rows: ``13`` is a Postgres, ``3.12`` a Python, ``django`` all
of Django. What follows ``--`` goes to pytest. Ends with a table, and with 1 if anything failed in
any row.
"""

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from pathlib import Path

from scripts import django_environments, postgres_servers, python_environments
from scripts.postgres_servers import NoServer
from scripts.python_environments import NoPython

PYTHONS = ("3.11", "3.12", "3.13")
# Run if this machine has an interpreter; the docs name it only once it has run.
WANTED_PYTHONS = ("3.14",)
# Whatever has "postgres" in its path or is parametrized with it: conformance, tests/postgres, and
# of the layers above what tests/stores.py sends there. Benchmarks compare on one server only.
ON_POSTGRES = ["-q", "-k", "postgres", "--deselect", "tests/benchmarks"]
ON_PYTHON = ["-q"]
PYTHON_TESTS = [
    f"tests/{room}"
    for room in ("core", "kit", "client", "app", "engine", "conformance", "crash", "pull")
]
SERVER = "TEST_POSTGRES_MAJOR"
ON_DJANGO = "django"
DJANGO_TESTS = ("-q", "tests/django/test_project.py")


class Unreadable(Exception):
    """Tests that do not even load."""


@dataclass(frozen=True)
class Row:
    """One combination of versions and the tests that run on it. With ``django`` the tests run here
    and start the project with ``python``."""

    python: str
    major: int
    tests: tuple[str, ...]
    django: str = ""


@dataclass(frozen=True)
class Run:
    """What came of one row."""

    python: str
    postgres: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    code: int
    django: str = ""


def files() -> list[str]:
    """Where tests on Postgres are. Read once: reading all tests takes every process 40 s."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "tests", *ON_POSTGRES]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise Unreadable(f"the tests cannot be read:\n{listed.stdout}")
    return sorted({line.partition("::")[0] for line in listed.stdout.splitlines() if "::" in line})


def rows(words: list[str]) -> list[Row]:
    """The rows that the arguments ask for; all of them without arguments."""
    own = python_environments.own()
    majors = [word for word in words if "." not in word and word != ON_DJANGO]
    pythons = [word for word in words if "." in word]
    if not words:
        majors = ["all"]
        pythons = [*PYTHONS, *(name for name in WANTED_PYTHONS if python_environments.find(name))]
    chosen: list[Row] = []
    if majors:
        print("Looking for tests that use Postgres ...", flush=True)
        tests = (*ON_POSTGRES, *files())
        chosen += [Row(own, major, tests) for major in postgres_servers.majors(majors)]
    newest = postgres_servers.supported()[-1]
    others = [minor for minor in pythons if words or minor != own]
    chosen += [Row(minor, newest, (*ON_PYTHON, *PYTHON_TESTS)) for minor in others]
    if not words or ON_DJANGO in words:
        chosen += django_rows(newest)
    return chosen


def django_rows(major: int) -> list[Row]:
    """The project on every Django, on every Python that runs all of them."""
    return [
        Row(minor, major, DJANGO_TESTS, django)
        for django in django_environments.DJANGOS
        for minor in django_environments.PYTHONS
    ]


def run(row: Row, more: list[str]) -> Run:
    """All chosen tests of one row."""
    postgres_servers.install(row.major)
    program = postgres_servers.home() / str(row.major) / "bin" / "postgres"
    printed = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    postgres = printed.stdout.split()[2]
    interpreter, variables = Path(sys.executable), {SERVER: str(row.major)}
    if row.django:
        program = django_environments.environment(row.django, row.python)
        variables["TEST_DJANGO"] = f"{row.django} {row.python}"
    else:
        program = interpreter = python_environments.environment(row.python)
    python = python_environments.version(program) or row.python
    django = f"Django {row.django}, " if row.django else ""
    print(f"\n{django}Python {python}, Postgres {postgres}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [interpreter, "-m", "pytest", f"--junitxml={report}", *row.tests, *more]
        done = subprocess.run(command, env={**os.environ, **variables}, check=False)
        counts = _counts(report)
    seconds = time.monotonic() - begun
    return Run(python, postgres, *counts, seconds, done.returncode, row.django)


def _counts(report: Path) -> tuple[int, int, int]:
    """Passed, failed and skipped; nothing at all if the run did not come that far."""
    if not report.exists():
        return 0, 0, 0
    suites = xml.parse(report).getroot().iter("testsuite")
    found = [{key: int(suite.get(key, "0")) for key in _KEYS} for suite in suites]
    tests, failures, errors, skipped = (sum(one[key] for one in found) for key in _KEYS)
    return tests - failures - errors - skipped, failures + errors, skipped


_KEYS = ("tests", "failures", "errors", "skipped")


def table(runs: list[Run]) -> str:
    lines = ["python   django  postgres  passed  failed  skipped  seconds"]
    lines += [
        f"{one.python:<7}  {one.django:>6}  {one.postgres:>8}  {one.passed:>6}  {one.failed:>6}"
        f"  {one.skipped:>7}"
        f"  {one.seconds:>7.0f}" + ("" if one.code == 0 else f"  pytest ended with {one.code}")
        for one in runs
    ]
    return "\n".join(lines)


def main(words: list[str]) -> int:
    cut = words.index("--") if "--" in words else len(words)
    chosen, more = words[:cut], words[cut + 1 :]
    runs: list[Run] = []
    try:
        for row in rows(chosen):
            runs.append(run(row, more))
            print(f"\n{table(runs)}", flush=True)
    except (NoServer, NoPython, Unreadable) as error:
        print(error, file=sys.stderr)
        return 1
    return 1 if any(one.code for one in runs) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
