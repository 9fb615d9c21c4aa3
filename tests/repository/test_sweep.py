"""TEST_SWEEP_ALL reaches the sweeps although the tests remove a developer's own FORGE_ settings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Imports what every test process imports, then sweeps a call that has more points than allowed.
PROGRAM = """
import contextlib
import tests.conftest
from tests.interrupting import sweep

def call():
    for _ in range(20):
        with contextlib.ExitStack():
            pass

print(sweep(call, lambda _: None, max_points=10))
"""


@pytest.mark.parametrize(("chosen", "everything"), [({}, False), ({"TEST_SWEEP_ALL": "1"}, True)])
def test_a_sweep_tries_every_point_when_asked(
    project_root: Path, chosen: dict[str, str], everything: bool
) -> None:
    plain = {name: value for name, value in os.environ.items() if name != "TEST_SWEEP_ALL"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=project_root,
        env={**plain, **chosen},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (int(done.stdout) > 20) is everything
