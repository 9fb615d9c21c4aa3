"""``WrongClock`` itself: processes see the wrong time, and the steps."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.clocks.wrong_clock import HAS_COMPILER, WrongClock

ASK = """
import sqlite3, sys, time
from datetime import datetime, timezone
for _ in sys.stdin:
    inner = sqlite3.connect(":memory:").execute("SELECT strftime('%s', 'now')").fetchone()[0]
    moment = datetime.now(timezone.utc).timestamp()
    print(time.time(), time.time_ns() / 1e9, time.monotonic(), moment, inner, flush=True)
"""


@pytest.mark.processes
@pytest.mark.parametrize("compiled", [True, False] if HAS_COMPILER else [False])
def test_a_wrong_clock_steps_while_elapsed_time_stays_correct(
    tmp_path: Path, compiled: bool
) -> None:
    wrong = WrongClock(tmp_path, compiled=compiled)
    child = subprocess.Popen(
        [sys.executable, "-c", ASK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **wrong.environment},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        for ahead_s in (0, 3600, -3600):
            wrong.set(ahead_s)
            child.stdin.write("\n")
            child.stdin.flush()
            told = [float(word) for word in child.stdout.readline().split()]
            wall, wall_ns, mono, *c_code = told
            for seen in [wall, wall_ns, *(c_code if compiled else ())]:
                assert abs(seen - time.time() - ahead_s) < 60
            assert abs(mono - time.monotonic()) < 60
        child.stdin.close()
