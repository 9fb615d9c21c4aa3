"""Run the test suite; at most two tests that failed beside others get a second look, alone.

A failure never goes unseen: a test that passes only alone is counted and named at the end of the
run. More than two failures, or a second one of the same test, fail the run as they are.
"""

import json
import subprocess
import sys
from pathlib import Path

MAX_UNSTEADY = 2
FAILED = Path(".pytest_cache/v/cache/lastfailed")
TESTS_FAILED = 1


def pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def failed() -> list[str]:
    if not FAILED.exists():
        return []
    return sorted(json.loads(FAILED.read_text(encoding="utf-8")))


def main(arguments: list[str]) -> int:
    FAILED.unlink(missing_ok=True)
    code = pytest(*arguments)
    tests = failed()
    # Anything else than failed tests (a usage error, an interruption) is nothing to look at twice.
    if code == TESTS_FAILED and len(tests) > MAX_UNSTEADY:
        print(f"\n{len(tests)} failed: at most {MAX_UNSTEADY} get a second look.", flush=True)
    if code != TESTS_FAILED or not 0 < len(tests) <= MAX_UNSTEADY:
        return code
    print(f"\n{len(tests)} failed beside other tests; a second look, alone:", flush=True)
    again = pytest(*tests)
    if again == 0:
        print(
            f"\nUNSTEADY: {len(tests)} failed once and passed alone (at most {MAX_UNSTEADY} may)."
        )
        print("Each hides a cause; find it.")
        print("\n".join(f"  {test}" for test in tests), flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
