"""Steps, waits and events in the model.

Sources: ``JobStore.exchange`` (Steps), ``store.steps``, ``store.events``. The numbers of events are
those that the store drew: ``event_numbers`` holds them in the order of the events of a call.
"""

from collections.abc import Iterable, Sequence

from forge_jobs.core.events import NewEvent, Wait, topic_of
from forge_jobs.core.job import Claim
from forge_jobs.core.steps import StepWrite

from .limit_buckets import LimitBuckets
from .state import SUSPENDED, Event, Job, Step, later

NEVER = 253_402_300_799_000_000


class Histories(LimitBuckets):
    """What jobs have stored, and what they wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.event_keys: dict[tuple[str, str], int] = {}
        self.event_numbers: list[int] = []

    def mine(self, owner: int, claim: Claim) -> Job | None:
        """The job of a claim that is still valid."""
        raise NotImplementedError

    # Steps.

    def write(self, owner: int, write: StepWrite) -> tuple[str, Step | None]:
        """Store a step of a running job: the verdict, and what is stored."""
        job = self.mine(owner, Claim(write.key, write.epoch))
        if job is None:
            return "stale", None
        if write.name in job.steps:
            return "already", job.steps[write.name]
        self.add_step(job, write)
        return "applied", job.steps[write.name]

    def add_step(self, job: Job, write: StepWrite) -> None:
        """The first write of a name stays."""
        step = Step(str(write.kind), write.epoch, write.began_at, write.value)
        job.steps.setdefault(write.name, step)

    def mark(self, job: Job) -> None:
        """A run that ended has stored steps: its job does not expire any more."""
        job.has_steps, job.expires_at = True, None

    def mark_found(self, job: Job) -> None:
        if job.steps:
            self.mark(job)

    # Waits.

    def ask(self, owner: int, claim: Claim, wait: Wait) -> tuple[str, Step | None]:
        """A running handler asks for an event."""
        job = self.mine(owner, claim)
        if job is None:
            return "stale", None
        step = self.decided(job, wait)
        return ("applied" if step is None else "already"), step

    def decided(self, job: Job, wait: Wait) -> Step | None:
        """The step of a wait, which takes an event that is there."""
        if wait.step not in job.steps:
            event = self._first(wait, None)
            if event is not None:
                self._take(job, wait, event)
        return job.steps.get(wait.step)

    def wake(self, job: Job) -> None:
        """The time of a suspended job has come."""
        wait, job.wait = job.wait, None
        if wait is None or wait.deadline is None or wait.deadline > self.now:
            return
        event = self._first(wait, wait.deadline)
        if event is not None:
            self._take(job, wait, event)
        else:
            job.steps.setdefault(wait.step, Step("timeout", job.epoch, wait.began_at, None))

    def send(self, wanted: Sequence[NewEvent]) -> list[tuple[bool, int]]:
        """Send events: whether each is a duplicate, and how many jobs it resumed."""
        answers: list[tuple[bool, int]] = []
        resumed: list[Job] = []
        for one in wanted:
            name = (one.name, one.dedupe_key or "")
            if one.dedupe_key is not None:
                if self.event_keys.get(name, 0) > self.now:
                    answers.append((True, 0))
                    continue
                self.event_keys[name] = later(self.now, one.keep_s)
            ends_at = later(self.now, one.keep_s)
            topic = topic_of(one.name, one.key)
            self.events.append(
                Event(self.event_numbers.pop(0), topic, self.now, ends_at, one.payload)
            )
            met = [job for job in self._suspended() if self._resume(job)]
            resumed += met
            answers.append((False, len(met)))
        self.admit_or_hold_all(resumed)
        return answers

    def cursor(self, job: Job, topic: str) -> int:
        """The number of the last event of a topic that a job took."""
        events = (step.event for step in job.steps.values())
        return max((one.seq for one in events if one is not None and one.topic == topic), default=0)

    def _suspended(self) -> Iterable[Job]:
        return [job for job in self.jobs.values() if job.status is SUSPENDED and job.wait]

    def _resume(self, job: Job) -> bool:
        event = None if job.wait is None else self._first(job.wait, None)
        if job.wait is None or event is None:
            return False
        self._take(job, job.wait, event)
        job.wait, job.run_at = None, self.now
        return True

    def _take(self, job: Job, wait: Wait, event: Event) -> None:
        step = Step("event", job.epoch, wait.began_at, event.payload, event)
        job.steps.setdefault(wait.step, step)

    def _first(self, wait: Wait, sent_until: int | None) -> Event | None:
        """The oldest event that a wait takes."""
        found = [
            event
            for event in self.events
            for topic in wait.topics
            if event.topic == topic.topic
            and event.seq > topic.after
            and event.sent_at >= topic.since
            and event.ends_at >= wait.began_at
            and (sent_until is None or event.sent_at <= sent_until)
        ]
        return min(found, key=lambda event: event.seq, default=None)
