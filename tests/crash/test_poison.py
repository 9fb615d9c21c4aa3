"""Handlers that kill their process, or block it for ever."""

import pytest

from forge_jobs.core.job import NewJob
from tests.crash.conftest import Site

pytestmark = pytest.mark.processes


def test_poison_reaches_dead_and_affects_no_other_job(site: Site) -> None:
    """A handler that calls os._exit ends dead after conviction; 1,000 others finish (F13)."""
    poison = site.enqueue("leave", "poison")
    site.forge.enqueuer.enqueue(_noops(1_000))
    parent = site.parent(processes=2)
    site.until_status(poison, "dead", 60)
    job = site.job(poison)
    assert job.crashes == 3
    assert job.last_error == "child process died: exit code 1"
    site.until(lambda: _counts(site).get("done") == 1_000, 60)
    assert _counts(site) == {"done": 1_000, "dead": 1}
    assert "died: exit code 1" in site.log_text()
    parent.terminate()
    assert parent.wait(60) == 0


def test_a_worker_that_holds_the_interpreter_lock_is_killed_and_replaced(site: Site) -> None:
    parent = site.parent(processes=1, lease=2)
    site.until_up(parent, 1)
    stuck = site.enqueue("hold_lock", "stuck", max_attempts=1)
    site.until(lambda: site.noted("start", "stuck"))
    behind = site.enqueue("noop", "behind")
    site.until_status(behind, "done")
    assert "sent no heartbeat for" in site.log_text()
    # Its only attempt was spent on the worker that died with it.
    site.until_status(stuck, "dead")
    parent.terminate()
    assert parent.wait(60) == 0


def _noops(count: int) -> list[NewJob]:
    return [NewJob(kind="noop", queue="crash", payload=b'{"name":"n"}') for _ in range(count)]


def _counts(site: Site) -> dict[str, int]:
    counts = site.forge.client.access.run(lambda store: store.metrics.counts())
    by_status: dict[str, int] = {}
    for count in counts:
        by_status[str(count.status)] = by_status.get(str(count.status), 0) + count.jobs
    return {status: jobs for status, jobs in by_status.items() if jobs}
