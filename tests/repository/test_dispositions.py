"""Inherited signal dispositions reach no test and no child of a test."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHILD = "import signal; print(*(signal.getsignal(n) == signal.SIG_IGN for n in (1, 2, 3)))"
STARTS_A_CHILD = f"""
import subprocess, sys
{{restore}}
subprocess.run([sys.executable, "-c", {CHILD!r}], check=True)
"""


def under_nohup(restore: str) -> str:
    script = STARTS_A_CHILD.format(restore=restore)
    command = ["sh", "-c", 'trap "" HUP INT QUIT; exec "$0" -c "$1"', sys.executable, script]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_u20_children_of_a_run_under_nohup_have_the_usual_dispositions() -> None:
    assert under_nohup("") == "True True True", "the shell must ignore them for this test"
    assert under_nohup("from tests.dispositions import restore; restore()") == "False False False"


@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGQUIT"])
def test_u20_this_run_ignores_no_signal_that_tests_send(name: str) -> None:
    import signal

    assert signal.getsignal(getattr(signal, name)) != signal.SIG_IGN
