"""How workers stop: in good order, at once, and without their parent.

That it takes no longer than the grace and two seconds is tested in virtual time (tests/sim): here
the machine may be busy with other things.
"""

import os
import signal
import time

import pytest

from tests.crash.conftest import Site

pytestmark = pytest.mark.processes


def test_sigterm_with_200_running_jobs(site: Site) -> None:
    """Jobs that end within the grace are done; the rest is released; nothing is lost."""
    grace = 3
    parent = site.parent(processes=2, lease=10, grace=grace, slots=200)
    site.until_up(parent, 2)
    kinds = ["rest"] * 4 + ["rest_in_thread"]
    long = [site.enqueue(kinds[n % 5], f"long {n}", seconds=60) for n in range(100)]
    short = [site.enqueue(kinds[n % 5], f"short {n}", seconds=1.5) for n in range(100)]
    site.until(lambda: len(site.noted("start")) == 200)
    began = time.monotonic()
    parent.terminate()
    assert parent.wait(60) == 0
    assert time.monotonic() - began < grace + 20

    for job_id in short:
        job = site.job(job_id)
        assert (job.status, job.attempts, job.owner is None) == ("done", 1, True)
    for job_id in long:
        job = site.job(job_id)
        assert (job.status, job.attempts, job.owner) == ("pending", 0, None)
        assert job.epoch > 1
    assert len(site.noted("start")) == 200


def test_a_second_sigterm_stops_at_once(site: Site) -> None:
    parent = site.parent(processes=2, grace=60)
    site.until_up(parent, 2)
    job = site.enqueue("rest", "long", seconds=300)
    site.until(lambda: site.noted("start", "long"))
    workers = [worker.pid for worker in site.workers_of(parent)]
    parent.terminate()
    site.until(lambda: "stopping" in site.log_text())
    parent.terminate()
    assert parent.wait(30) == 1
    site.until_gone(workers)
    # The next worker finds it without an owner.
    site.worker(lease=2)
    site.until(lambda: len(site.noted("start", "long")) == 2)
    assert site.status(job) == "running"


def test_a_killed_parents_workers_release_their_jobs_and_exit(site: Site) -> None:
    parent = site.parent(processes=2, grace=60)
    site.until_up(parent, 2)
    job = site.enqueue("rest", "long", seconds=300)
    site.until(lambda: site.noted("start", "long"))
    workers = [worker.pid for worker in site.workers_of(parent)]
    assert len(workers) == 2
    parent.kill()
    parent.wait()
    site.until_gone(workers)
    record = site.job(job)
    assert (record.status, record.attempts) == ("pending", 0)


def test_a_blocked_loop_does_not_keep_a_worker(site: Site) -> None:
    worker = site.worker(grace=1)
    site.enqueue("block", "blocked", seconds=60)
    site.until(lambda: site.noted("start", "blocked"))
    began = time.monotonic()
    worker.terminate()
    assert worker.wait(60) == 1
    assert time.monotonic() - began < 1 + 20


def test_ctrl_c_drains_without_an_error(site: Site) -> None:
    parent = site.parent(processes=2, grace=10)
    site.until_up(parent, 2)
    job = site.enqueue("rest", "short", seconds=1)
    site.until(lambda: site.noted("start", "short"))
    os.killpg(parent.pid, signal.SIGINT)
    assert parent.wait(60) == 0
    assert site.status(job) == "done"
    assert "Traceback" not in site.log_text()
