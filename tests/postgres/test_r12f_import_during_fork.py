"""R12 f: a fork while the driver is imported or begins to connect deadlocks nobody."""

import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from forge_jobs.backends.postgres.connection import driver
from tests.interrupting import raised_at

_NEVER = 10**9

# The driver takes a while to import.
SLOW_IMPORT = """
class SlowFinder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "asyncpg.exceptions":
            busy.set()
            time.sleep(0.5)
        return None

sys.meta_path.insert(0, SlowFinder)
"""

# Creating a TLS context takes a while, under a lock that a fork does not reset, as OpenSSL does.
SLOW_TLS = """
import ssl
native_lock = threading.Lock()

class SlowContext(ssl.SSLContext):
    def __new__(cls, protocol):
        if not native_lock.acquire(timeout=20):
            os._exit(3)
        busy.set()
        time.sleep(0.5)
        native_lock.release()
        return super().__new__(cls, protocol)

ssl.SSLContext = SlowContext
"""

# Another thread connects, and the process forks in the middle of the slow part.
PROGRAM = """
import os, sys, threading, time, warnings
warnings.simplefilter("ignore")
from forge_jobs import Forge, ForgeError

busy = threading.Event()
{slow}

def use():
    try:
        Forge("postgresql://127.0.0.1:9/none").ready()
    except ForgeError:
        return 0
    return 1

thread = threading.Thread(target=use)
thread.start()
busy.wait()
pid = os.fork()
if pid == 0:
    os._exit(use())
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize("slow", [SLOW_IMPORT, SLOW_TLS], ids=["import", "tls"])
def test_r12f_a_child_forked_during_the_import_can_import(project_root: Path, slow: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(slow=slow)],
        env=dict(os.environ, PYTHONPATH=str(project_root / "src")),
        timeout=60,
        check=False,
    )
    assert done.returncode == 0


def _fork() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _import_driver(found: list[object]) -> None:
    found.append(driver._driver_module())


@pytest.mark.processes
def test_r12f_a_signal_in_the_middle_of_a_fork_leaves_the_import_possible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hook that was interrupted kept the lock: every later import in another thread hung."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    raised = 0
    for point in range(raised_at(_NEVER, _fork).counted):
        raised += raised_at(point, _fork).raised
        found: list[object] = []
        thread = threading.Thread(target=_import_driver, args=(found,), daemon=True)
        thread.start()
        thread.join(10)
        assert found, f"the import hangs after an interrupt at point {point}"
    assert raised > 3
