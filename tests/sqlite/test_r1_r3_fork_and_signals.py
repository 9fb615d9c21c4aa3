"""R1 and R3 together: a signal that comes while a thread forks leaves no lock held.

Python drops what a signal handler raises in a hook of a fork and goes on with the fork.
"""

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from forge_jobs import Forge
from tests.interrupting import not_stuck, raised_at

_MAX_POINTS = 250
_NEVER = 10**9


def _nothing() -> None: ...


@pytest.fixture
def forge(path: Path) -> Iterator[Forge]:
    made = Forge(f"sqlite:///{path}")
    yield made
    made.close()


def _fork() -> None:
    with warnings.catch_warnings():
        # Forking with threads is what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@pytest.mark.processes
def test_r1_r3_a_signal_in_the_middle_of_a_fork_leaves_no_lock_held(
    forge: Forge, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    task = forge.task(kind="swept")(_nothing)
    task.enqueue()
    points = raised_at(_NEVER, _fork).counted
    # Every thread and pool that an earlier test of this process left has points of its own.
    tried = range(0, points, max(1, points // _MAX_POINTS))
    raised = 0
    for point in tried:
        tracing = raised_at(point, _fork)
        raised += tracing.raised
        with not_stuck(tracing.where):
            # Neither the writer's lock nor the lock between forks stays held.
            task.enqueue()
            _fork()
            task.enqueue()
    assert raised > 30
    store = forge.ready()
    counted = forge.client.access.run(lambda _: store.metrics.counts())
    assert sum(row.jobs for row in counted) == 1 + 2 * len(tried)
