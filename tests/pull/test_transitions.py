"""Every cell of the table of states: what an event does to a job in a state.

The table is the original's, with its three announced differences: a second complete is refused, a
completed job is not retried by hand, and a waiting job that was started before is ``failed`` until
it is claimed again.
"""

from collections.abc import Callable

import pytest

from forge_jobs import JobQueue, LeaseLost, Refused
from forge_jobs.pull import Job, JobStatus
from forge_jobs.testing.clock import MovableClock

LEASE_S = 60.0
BACK_OFF_IS_OVER_S = 20.0
LEASE_IS_OVER_S = LEASE_S * 1.2


class Scene:
    """A queue, its time, and one job brought into a state."""

    def __init__(self, queue: JobQueue, clock: MovableClock) -> None:
        self.queue = queue
        self.clock = clock
        self.id = ""
        self.job: Job | None = None

    def dequeue(self) -> Job | None:
        return self.queue.dequeue(lease=LEASE_S)

    def bring(self, state: str, max_attempts: int = 3) -> "Scene":
        self.id = self.queue.enqueue("work", {"n": 1}, max_attempts=max_attempts)
        if state == "pending":
            return self
        self.job = self.dequeue()
        assert self.job is not None
        match state:
            case "running":
                pass
            case "failed":
                self.queue.fail(self.job, "boom")
            case "completed":
                self.queue.complete(self.job)
            case _:
                self.queue.fail(self.job, "boom", permanent=True)
        assert self.status == state
        return self

    @property
    def now(self) -> Job:
        found = self.queue.get(self.id)
        assert found is not None
        return found

    @property
    def status(self) -> str:
        return self.now.status.value


@pytest.fixture
def scene(queue: JobQueue, clock: MovableClock) -> Scene:
    return Scene(queue, clock)


# ------------------------------------------------------------------ claim


def test_pending_claim_is_running(scene: Scene) -> None:
    scene.bring("pending")
    job = scene.dequeue()
    assert job is not None
    assert (job.id, job.status, job.attempts) == (scene.id, JobStatus.RUNNING, 1)
    assert job.started_at is not None
    assert scene.status == "running"


def test_only_pending_and_failed_jobs_are_claimed(scene: Scene) -> None:
    for state in ("running", "completed", "dead"):
        scene.bring(state)
        assert scene.dequeue() is None
        assert scene.status == state


def test_failed_claim_is_running_when_due_and_not_before(scene: Scene) -> None:
    scene.bring("failed")
    scene.clock.advance(10)
    assert scene.dequeue() is None
    scene.clock.advance(10)
    job = scene.dequeue()
    assert job is not None
    assert (job.id, job.attempts) == (scene.id, 2)
    assert scene.status == "running"


# ------------------------------------------------------------------ complete and fail

ENDINGS: dict[str, Callable[[JobQueue, Job | str], None]] = {
    "complete": lambda queue, job: queue.complete(job, {"late": True}),
    "fail": lambda queue, job: queue.fail(job, "late"),
}


@pytest.mark.parametrize("state", ["pending", "failed", "completed", "dead"])
def test_complete_and_fail_are_refused_unless_the_job_is_running(scene: Scene, state: str) -> None:
    for attempts_left in (True, False):
        last = 2 if state == "failed" else 1
        scene.bring(state, 5 if attempts_left else last)
        before = scene.now
        for ending in ENDINGS.values():
            for job in (scene.id, scene.job or scene.now):
                with pytest.raises(Refused):
                    ending(scene.queue, job)
        after = scene.now
        assert (after.status, after.attempts, after.result, after.error) == (
            before.status, before.attempts, before.result, before.error,
        )  # fmt: skip
        scene.job = None
        if state == "pending":
            scene.queue.cancel(scene.id)


def test_running_complete_is_completed(scene: Scene) -> None:
    for by in ("job", "id"):
        scene.bring("failed")
        scene.clock.advance(BACK_OFF_IS_OVER_S)
        job = scene.dequeue()
        assert job is not None
        scene.queue.complete(job if by == "job" else job.id, {"ok": True})
        done = scene.now
        assert (done.status, done.result, done.error) == (JobStatus.COMPLETED, {"ok": True}, None)
        assert done.completed_at is not None


def test_running_fail_with_attempts_left_is_failed(scene: Scene) -> None:
    for by in ("job", "id"):
        scene.bring("running", max_attempts=2)
        assert scene.job is not None
        scene.queue.fail(scene.job if by == "job" else scene.id, "boom")
        failed = scene.now
        assert (failed.status, failed.error, failed.attempts) == (JobStatus.FAILED, "boom", 1)
        assert failed.completed_at is None
        assert failed.scheduled_at > failed.created_at


def test_running_fail_on_the_last_attempt_is_dead(scene: Scene) -> None:
    scene.bring("running", max_attempts=1)
    scene.queue.fail(scene.id, "boom")
    dead = scene.now
    assert (dead.status, dead.error, dead.attempts) == (JobStatus.DEAD, "boom", 1)
    assert dead.completed_at is not None


# ------------------------------------------------------------------ lease lost


def test_running_lease_lost_is_failed_or_dead(scene: Scene) -> None:
    for max_attempts, state in ((1, "dead"), (2, "failed")):
        scene.bring("running", max_attempts)
        scene.clock.advance(LEASE_IS_OVER_S)
        assert scene.queue.dequeue(["other"]) is None
        lost = scene.now
        assert (lost.status, lost.attempts) == (state, 1)
        assert lost.error is not None
        assert "lease" in lost.error


def test_a_lost_lease_is_never_written_over(scene: Scene) -> None:
    scene.bring("running")
    late = scene.job
    assert late is not None
    scene.clock.advance(LEASE_IS_OVER_S)
    again = scene.dequeue()
    assert again is not None
    assert (again.id, again.attempts) == (scene.id, 2)
    for ending in ENDINGS.values():
        with pytest.raises(LeaseLost):
            ending(scene.queue, late)
    with pytest.raises(LeaseLost):
        scene.queue.heartbeat(late)
    assert scene.status == "running"
    scene.queue.complete(again, "second")
    assert scene.now.result == "second"


def test_a_lease_that_ended_unnoticed_can_still_be_used(scene: Scene) -> None:
    scene.bring("running")
    assert scene.job is not None
    scene.clock.advance(LEASE_IS_OVER_S)
    scene.queue.complete(scene.job)
    assert scene.status == "completed"


# ------------------------------------------------------------------ retry by hand


def test_retry_of_pending_running_and_completed_is_refused(scene: Scene) -> None:
    for state in ("completed", "running", "pending"):
        scene.bring(state)
        with pytest.raises(Refused):
            scene.queue.retry(scene.id)
        assert scene.status == state


def test_failed_and_dead_retry_are_pending_now_with_all_attempts(scene: Scene) -> None:
    for state in ("failed", "dead"):
        scene.bring(state)
        scene.queue.retry(scene.id)
        assert (scene.status, scene.now.attempts) == ("pending", 0)
        job = scene.dequeue()
        assert job is not None
        assert (job.id, job.attempts) == (scene.id, 1)


# ------------------------------------------------------------------ cancel


def test_pending_and_failed_cancel_are_cancelled(scene: Scene) -> None:
    for state in ("pending", "failed"):
        scene.bring(state)
        scene.queue.cancel(scene.id)
        assert scene.status == "cancelled"
        scene.clock.advance(BACK_OFF_IS_OVER_S)
        assert scene.dequeue() is None


def test_running_cancel_asks_the_handler_to_stop(scene: Scene) -> None:
    scene.bring("running")
    job = scene.job
    assert job is not None
    assert scene.queue.heartbeat(job) is True
    scene.queue.cancel(job)
    assert scene.status == "running"
    assert scene.queue.heartbeat(job) is False
    assert job.stop_requested
    scene.queue.fail(job, "stopped half-way")
    assert scene.status == "cancelled"


def test_a_job_that_is_completed_in_spite_of_a_cancel_is_completed(scene: Scene) -> None:
    scene.bring("running")
    assert scene.job is not None
    scene.queue.cancel(scene.id)
    scene.queue.complete(scene.job)
    assert scene.status == "completed"


def test_completed_and_dead_cancel_are_refused(scene: Scene) -> None:
    for state in ("completed", "dead"):
        scene.bring(state)
        with pytest.raises(Refused):
            scene.queue.cancel(scene.id)
        assert scene.status == state


# ------------------------------------------------------------------ cleanup


def test_cleanup_keeps_pending_running_and_failed(scene: Scene) -> None:
    for state in ("failed", "running", "pending"):
        scene.bring(state)
        scene.clock.advance(5)
        assert scene.queue.cleanup(0) == 0
        assert scene.status == state


def test_cleanup_deletes_completed_and_dead(scene: Scene) -> None:
    for state in ("completed", "dead"):
        scene.bring(state)
        assert scene.queue.cleanup(0) == 1
        assert scene.queue.get(scene.id) is None


def test_cleanup_keeps_the_dead_if_asked_to(scene: Scene) -> None:
    scene.bring("dead")
    scene.bring("completed")
    assert scene.queue.cleanup(0, keep_dead=True) == 1
    assert scene.queue.counts() == {
        "pending": 0, "running": 0, "failed": 0, "completed": 0, "dead": 1,
    }  # fmt: skip
