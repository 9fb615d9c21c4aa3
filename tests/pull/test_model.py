"""Random walks: whatever is called in whatever order, the queue agrees with a small model."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from forge_jobs import JobQueue, LeaseLost, Refused, Retry
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.pull import Job
from forge_jobs.testing.clock import MovableClock

LEASE_S, BACK_OFF_S = 100.0, 30.0
TYPES = ("a", "b")


@dataclass
class Expected:
    """What the model knows about one job."""

    type: str
    priority: int
    max_attempts: int
    order: int
    status: str = "pending"
    attempts: int = 0
    due: float = 0.0
    held_until: float = 0.0


class Walk(RuleBasedStateMachine):
    """One queue in memory, a clock, and the model beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = MovableClock()
        self.queue = JobQueue.open(
            "memory://",
            retry=Retry(delays=[BACK_OFF_S]),
            clock=self.clock,
            entropy=SeededEntropy(1),
        )
        self.now = 0.0
        self.jobs: dict[str, Expected] = {}
        self.held: list[Job] = []

    def teardown(self) -> None:
        self.queue.close()

    @rule(type=st.sampled_from(TYPES), priority=st.integers(-1, 1), attempts=st.integers(1, 3))
    def enqueue(self, type: str, priority: int, attempts: int) -> None:
        job_id = self.queue.enqueue(type, priority=priority, max_attempts=attempts)
        expected = Expected(type, priority, attempts, len(self.jobs), due=self.now)
        self.jobs[job_id] = expected

    @rule(types=st.sampled_from([None, ["a"], ["b"], ["a", "b"], ["c"]]))
    def dequeue(self, types: list[str] | None) -> None:
        job = self.queue.dequeue(types, lease=LEASE_S)
        self._lose_what_has_lapsed()
        due = [
            (one.priority, one.due, one.order, job_id)
            for job_id, one in self.jobs.items()
            if one.status in ("pending", "failed")
            and one.due <= self.now
            and (types is None or one.type in types)
        ]
        assert (job.id if job is not None else None) == (min(due)[3] if due else None)
        if job is not None:
            expected = self.jobs[job.id]
            expected.status, expected.attempts = "running", expected.attempts + 1
            expected.held_until = self.now + LEASE_S * 1.1
            assert job.attempts == expected.attempts
            self.held.append(job)

    @rule(place=st.integers(0, 9), succeed=st.booleans(), by_id=st.booleans())
    def end(self, place: int, succeed: bool, by_id: bool) -> None:
        if place >= len(self.held):
            return
        job = self.held[place]
        expected = self.jobs.get(job.id)
        current = (
            expected is not None
            and expected.status == "running"
            and expected.attempts == job.attempts
        )
        try:
            if succeed:
                self.queue.complete(job.id if by_id and current else job)
            else:
                self.queue.fail(job.id if by_id and current else job, "no")
        except (LeaseLost, Refused):
            assert not current
            return
        assert current
        assert expected is not None
        if succeed:
            expected.status = "completed"
        elif expected.attempts >= expected.max_attempts:
            expected.status = "dead"
        else:
            expected.status, expected.due = "failed", self.now + BACK_OFF_S

    @rule(place=st.integers(0, 9))
    def heartbeat(self, place: int) -> None:
        running = [
            job
            for job in self.held
            if (one := self.jobs.get(job.id)) is not None
            and one.status == "running"
            and one.attempts == job.attempts
        ]
        if place < len(running):
            assert self.queue.heartbeat(running[place]) is True
            self.jobs[running[place].id].held_until = self.now + LEASE_S * 1.1

    @rule(seconds=st.sampled_from([40, 80, 120]))
    def wait(self, seconds: int) -> None:
        # Never into the tenth by which a lease may hold longer than was asked for.
        self.clock.advance(seconds)
        self.now += seconds

    @rule(keep_dead=st.booleans())
    def cleanup(self, keep_dead: bool) -> None:
        gone = {
            job_id
            for job_id, one in self.jobs.items()
            if one.status == "completed" or (one.status == "dead" and not keep_dead)
        }
        assert self.queue.cleanup(0, keep_dead=keep_dead) == len(gone)
        for job_id in gone:
            del self.jobs[job_id]

    @invariant()
    def every_job_is_where_the_model_says(self) -> None:
        for job_id, expected in self.jobs.items():
            job = self.queue.get(job_id)
            assert job is not None
            assert (job.status.value, job.attempts) == (expected.status, expected.attempts)

    def _lose_what_has_lapsed(self) -> None:
        for one in self.jobs.values():
            if one.status == "running" and one.held_until <= self.now:
                one.status = "dead" if one.attempts >= one.max_attempts else "failed"


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=40, stateful_step_count=30)
