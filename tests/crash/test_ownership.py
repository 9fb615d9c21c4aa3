"""Fencing: only the live owner of the current epoch may finish a job."""

import os
import signal
import time

import pytest

from rigs.storms.history import now
from tests import between_writes
from tests.crash.conftest import Site

pytestmark = pytest.mark.processes


def test_a_late_finish_of_a_stopped_worker_is_refused(site: Site) -> None:
    """SIGSTOP past the lease: another worker finishes; the late finish is refused."""
    stopped = site.worker(lease=2)
    cancelled = site.enqueue("cancel_then_finish", "cancelled")
    late = site.enqueue("return_late", "late")
    site.until(lambda: len(site.noted("start")) == 2)
    between_writes.stop(stopped.pid, site.url)
    other = site.worker(lease=2)
    site.until_status(cancelled, "done")
    site.until_status(late, "done")
    assert {entry["pid"] for entry in site.noted("start")} == {stopped.pid, other.pid}

    os.kill(stopped.pid, signal.SIGCONT)
    site.until(lambda: site.noted("cancelled", "cancelled"))
    (site.folder / "late.go").touch()
    site.until(lambda: site.noted("late", "late"))
    time.sleep(1)
    for job_id in (cancelled, late):
        job = site.job(job_id)
        assert (job.status, job.result) == ("done", b'"second"')
        assert (job.attempts, job.crashes) == (2, 1)
        # Two claims and a reap; a claim and a release more if it was stored before the worker had
        # published its tasks.
        assert job.epoch in (3, 5)
    assert site.noted("late", "late")[0]["cancelled"] is True

    # It takes part again, as a new process.
    other.terminate()
    assert other.wait(60) == 0
    again = site.enqueue("noop", "again")
    site.until_status(again, "done")
    stopped.terminate()
    assert stopped.wait(60) == 0


def test_lease_survives_blocked_loop(site: Site) -> None:
    """A coroutine that blocks its loop for more than two leases keeps its job (F7)."""
    first, second = site.worker(lease=2), site.worker(lease=2)
    site.until_started(2)
    blocked = site.enqueue("block", "blocked", seconds=5)
    site.until_status(blocked, "done")
    job = site.job(blocked)
    assert (job.attempts, job.crashes) == (1, 0)
    assert len(site.noted("start", "blocked")) == 1
    for worker in (first, second):
        worker.terminate()
    for worker in (first, second):
        assert worker.wait(60) == 0


def test_a_killed_workers_job_starts_again_within_lease_and_five_seconds(site: Site) -> None:
    killed = site.worker(lease=2)
    job = site.enqueue("cancel_then_finish", "again")
    site.until(lambda: site.noted("start", "again"))
    site.worker(lease=2)
    site.until_started(2)
    killed.kill()
    killed_at = now()
    killed.wait()
    site.until_status(job, "done")
    _, second = site.noted("start", "again")
    assert second["at"] - killed_at <= 2 + 5
