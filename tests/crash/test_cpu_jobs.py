"""``cpu=True`` jobs end with all processes they started, however they end."""

import json
import subprocess
from dataclasses import dataclass

import pytest

from tests.crash.conftest import Site

pytestmark = pytest.mark.processes


@dataclass
class Running:
    """A worker whose child, and the child's child, are at work on a job."""

    job_id: str
    family: list[int]
    worker: "subprocess.Popen[bytes]"


@pytest.fixture
def running(site: Site) -> Running:
    worker = site.worker(lease=2)
    job_id = site.enqueue("family", "family")
    site.until(lambda: site.noted("start", "family"))
    return Running(job_id, site.noted("start", "family")[0]["family"], worker)


def test_a_child_enqueues_like_any_other_handler(site: Site) -> None:
    site.worker()
    job_id = site.enqueue("sow", "seed")
    site.until(lambda: len(site.noted("end")) == 3)
    assert {entry["name"] for entry in site.noted("end")} == {
        "seed by task",
        "seed by kind",
        "seed on done",
    }
    for sown in json.loads(site.job(job_id).result or b"[]"):
        site.until_status(sown, "done")


def test_timeout_kills_the_family(site: Site) -> None:
    site.worker(lease=2)
    # On a busy machine the start of a child alone may take as long as the job is given.
    site.until_status(site.enqueue("warm", "warm"), "done")
    job_id = site.enqueue("short_family", "family")
    site.until_status(job_id, "failed")
    assert site.job(job_id).last_error == "timed out after 3 s"
    site.until_gone(site.noted("start", "family")[0]["family"])


def test_cancel_kills_the_family(site: Site, running: Running) -> None:
    site.forge.job(running.job_id).cancel()
    site.until_status(running.job_id, "cancelled")
    site.until_gone(running.family)


def test_a_killed_worker_takes_the_family_along(site: Site, running: Running) -> None:
    running.worker.kill()
    running.worker.wait()
    site.until_gone(running.family)


def test_a_stopping_worker_ends_the_family_and_releases_the_job(
    site: Site, running: Running
) -> None:
    running.worker.terminate()
    assert running.worker.wait(60) == 0
    site.until_gone(running.family)
    job = site.job(running.job_id)
    assert (job.status, job.attempts) == ("pending", 0)
