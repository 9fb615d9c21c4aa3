"""Run every test that uses Postgres on each supported major, one after the other: ``make matrix``.

Arguments: majors (all of them if none is given); what follows ``--`` goes to pytest. Ends with a
table, and with 1 if anything failed on any of them.
"""

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from pathlib import Path

from scripts import postgres_servers
from scripts.postgres_servers import NoServer

# Whatever has "postgres" in its path or is parametrized with it: conformance, tests/postgres, and
# of the layers above what tests/stores.py sends there. Benchmarks compare on one server only.
CHOSEN = ["-q", "-k", "postgres", "--deselect", "tests/benchmarks"]
SERVER = "TEST_POSTGRES_MAJOR"


class Unreadable(Exception):
    """Tests that do not even load."""


@dataclass(frozen=True)
class Run:
    """What came of one major."""

    major: int
    version: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    code: int


def files() -> list[str]:
    """Where such tests are. Looked up once: reading all tests takes every process of a run 40 s."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "tests", *CHOSEN]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise Unreadable(f"the tests cannot be read:\n{listed.stdout}")
    return sorted({line.partition("::")[0] for line in listed.stdout.splitlines() if "::" in line})


def run(major: int, tests: list[str]) -> Run:
    """All chosen tests on one major."""
    postgres_servers.install(major)
    program = postgres_servers.home() / str(major) / "bin" / "postgres"
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    version = told.stdout.split()[2]
    print(f"\nPostgres {version}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *CHOSEN, *tests]
        done = subprocess.run(command, env={**os.environ, SERVER: str(major)}, check=False)
        counts = _counts(report)
    seconds = time.monotonic() - begun
    return Run(major, version, *counts, seconds, done.returncode)


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
    lines = ["major  version  passed  failed  skipped  seconds"]
    lines += [
        f"{one.major:>5}  {one.version:>7}  {one.passed:>6}  {one.failed:>6}  {one.skipped:>7}"
        f"  {one.seconds:>7.0f}" + ("" if one.code == 0 else f"  pytest ended with {one.code}")
        for one in runs
    ]
    return "\n".join(lines)


def main(words: list[str]) -> int:
    cut = words.index("--") if "--" in words else len(words)
    chosen, more = words[:cut], words[cut + 1 :]
    try:
        majors = postgres_servers.majors(chosen or ["all"])
        print("Looking for tests that use Postgres ...", flush=True)
        tests = [*files(), *more]
        runs: list[Run] = []
        for major in majors:
            runs.append(run(major, tests))
            print(f"\n{table(runs)}", flush=True)
    except (NoServer, Unreadable) as error:
        print(error, file=sys.stderr)
        return 1
    return 1 if any(one.code for one in runs) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
