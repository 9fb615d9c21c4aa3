"""Steps of the machine for histories: steps, waits, events, and a retry from a step."""

from msgspec import json

from forge_jobs.core.errors import KeyTaken
from forge_jobs.core.events import NewEvent, TakenEvent, Wait, WaitTopic, topic_of
from forge_jobs.core.job import Claim, ClaimedJob
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import FinishSteps, StepKind, StepRecord, StepWrite
from forge_jobs.store.jobs import Exchange, Exchanged, WaitCheck

from .machine import StoreMachine, pick
from .requests import Asking, Outcome
from .state import CANCELLED, DEAD, FAILED, Job, Step, later

_NAMES = ("a", "b", "c\x1f1")
_WAITS = ("w", "w#2")


def shown(record: StepRecord) -> tuple[object, ...]:
    """A stored step as the model knows it."""
    value = record.value
    if record.kind is StepKind.EVENT:
        assert value is not None
        taken = json.decode(value, type=TakenEvent)
        event = (taken.seq, topic_of(taken.name, taken.key), taken.sent_at)
        return str(record.kind), record.epoch, record.began_at, bytes(taken.payload), event
    return str(record.kind), record.epoch, record.began_at, value, None


def expected(step: Step) -> tuple[object, ...]:
    """The same of the model."""
    event = step.event
    taken = None if event is None else (event.seq, event.topic, event.sent_at)
    return step.kind, step.epoch, step.began_at, step.value, taken


def check_claimed(claim: ClaimedJob, job: Job) -> None:
    """The history that a claim brings."""
    if not job.has_steps:
        assert claim.steps is None
        return
    assert claim.steps is not None
    assert (claim.steps.failed_runs, claim.steps.more) == (job.failed_runs, False)
    assert [(one.name, shown(one)) for one in claim.steps.records] == [
        (name, expected(step)) for name, step in sorted(job.steps.items())
    ]


class SteppingMachine(StoreMachine):
    """The steps that need a history."""

    def write_steps(self, who: int, picks: list[tuple[int, int]], skew: int) -> None:
        """A process stores steps of its running jobs, or of claims with another epoch."""
        owner, mine = self._claims(who, skew)
        if not mine:
            return
        writes = [self._step(pick(mine, which), pick(_NAMES, name)) for which, name in picks]
        answer = self._exchange(owner, steps=tuple(writes))
        for write, seen in zip(writes, answer.steps, strict=True):
            verdict, step = self.model.write(owner, write)
            assert (seen.verdict, None if seen.record is None else shown(seen.record)) == (
                verdict,
                None if step is None else expected(step),
            )
        self.check()

    def ask_for_an_event(self, who: int, which: int, asking: Asking) -> None:
        """A running handler asks for an event."""
        owner, mine = self._claims(who, 0)
        if not mine:
            return
        claim = pick(mine, which)
        wait = self.wait_of(self.model.jobs[claim.key], asking)
        [seen] = self._exchange(owner, waits=(WaitCheck(claim, wait),)).waits
        verdict, step = self.model.ask(owner, claim, wait)
        assert (seen.verdict, None if seen.record is None else shown(seen.record)) == (
            verdict,
            None if step is None else expected(step),
        )
        self.check()

    def send(self, wanted: list[tuple[str, str, str | None, float]]) -> None:
        """Somebody sends events."""
        sent: list[NewEvent] = []
        for name, key, dedupe_key, keep_s in wanted:
            self.made += 1
            payload = b"%d" % self.made
            sent.append(
                NewEvent(name=name, key=key, payload=payload, dedupe_key=dedupe_key, keep_s=keep_s)
            )
        answers = self.ask(self.store.events.send(sent))
        stored = self.factory.runner.run(self.store.events.page(limit=len(sent)))
        numbers = {one.payload: one.seq or 0 for one in stored}
        self.model.event_numbers = [
            numbers[one.payload]
            for one, answer in zip(sent, answers, strict=True)
            if not answer.duplicate
        ]
        assert [(one.duplicate, one.resumed) for one in answers] == self.model.send(sent)
        assert self.ask(self.store.events.deliver(limit=100)) == 0
        self.check()

    def retry_from(self, which: int, name: int) -> None:
        """An operator retries an ended job from a step."""
        jobs = [job for job in self.model.jobs.values() if job.steps]
        apt = [job for job in jobs if job.status in (FAILED, DEAD, CANCELLED)] or jobs
        if not apt:
            return
        job = pick(apt, which)
        step = pick(sorted(job.steps), name)
        self.admit_all()
        try:
            seen = self.ask(self.store.steps.retry_from(job.id, step))
        except KeyTaken:
            assert self.model.key_blocked(job)
            return
        assert seen == self.model.retry_from(job, step)
        self.check()

    def admit_all(self) -> None:
        """Admit held jobs that have room before another may join them."""
        self.ask(self.store.limits.admit(limit=10_000))
        self.model.admit(*self.model.all_buckets())
        self.check()

    def parting(
        self, claim: Claim, job: Job | None, outcome: Outcome, status: JobStatus
    ) -> FinishSteps | None:
        """What a finish adds to the history of its job."""
        if job is None or outcome.event == "done":
            return None
        now = self.model.now
        match outcome.event:
            case "suspend":
                wait = self.wait_of(job, outcome.asking)
                times = [outcome.asking.wake_s, outcome.asking.deadline_s]
                known = [later(now, span) for span in times if span is not None]
                return FinishSteps(
                    steps=self._slept(claim, outcome.asking.wake_s),
                    run_at=min(known, default=None),
                    wait=wait,
                )
            case "restart":
                self.made += 1
                return FinishSteps(
                    payload=b'{"n": %d}' % self.made, steps=self._slept(claim, outcome.delay_s)
                )
            case "snooze" if outcome.asking.wake_s is not None:
                run_at = later(now, outcome.asking.wake_s)
                return FinishSteps(steps=self._slept(claim, outcome.asking.wake_s), run_at=run_at)
            case "fail" if job.steps and status is FAILED and outcome.progress:
                return FinishSteps(attempt_returned=True)
            case _:
                return FinishSteps() if job.steps else None

    def wait_of(self, job: Job, asking: Asking) -> Wait:
        """A wait of a handler that has taken what is in its history."""
        now = self.model.now
        topics = tuple(
            WaitTopic(
                topic_of(name, "1"),
                self.model.cursor(job, topic_of(name, "1")),
                now if asking.is_late else 0,
            )
            for name in asking.names
        )
        deadline = None if asking.deadline_s is None else later(now, asking.deadline_s)
        return Wait(pick(_WAITS, asking.step), now, topics, deadline)

    def check(self) -> None:
        """Compare histories and waits besides."""
        super().check()
        for key, found in self.histories.items():
            steps = self.model.jobs[key].steps
            assert [(one.name, shown(one)) for one in found] == [
                (name, expected(step)) for name, step in sorted(steps.items())
            ]
        waits = [
            (one.job_id, topic_of(one.name, one.key), one.step, one.deadline) for one in self.waits
        ]
        assert sorted(waits) == sorted(
            (job.id, topic.topic, job.wait.step, job.wait.deadline)
            for job in self.model.jobs.values()
            if job.wait is not None
            for topic in job.wait.topics
        )

    def _slept(self, claim: Claim, span_s: float | None) -> tuple[StepWrite, ...]:
        if span_s is None:
            return ()
        value = b"%d" % later(self.model.now, span_s)
        now = self.model.now
        return (StepWrite(claim.key, claim.epoch, "sleep", StepKind.SLEEP, now, now, value),)

    def _step(self, claim: Claim, name: str) -> StepWrite:
        self.made += 1
        now, value = self.model.now, b"%d" % self.made
        return StepWrite(claim.key, claim.epoch, name, StepKind.STEP, now, now, value)

    def _claims(self, who: int, skew: int) -> tuple[int, list[Claim]]:
        running = [job for job in self.model.jobs.values() if job.status is JobStatus.RUNNING]
        if not running:
            return 0, []
        owner = pick(running, who).owner or 0
        owned = self.model.owned(owner)
        return owner, [Claim(job.key, job.epoch + skew) for job in owned]

    def _exchange(
        self,
        owner: int,
        *,
        steps: tuple[StepWrite, ...] = (),
        waits: tuple[WaitCheck, ...] = (),
    ) -> Exchanged:
        self.number += 1
        request = Exchange(owner=owner, number=self.number, steps=steps, waits=waits)
        answer = self.ask(self.store.jobs.exchange(request))
        assert list(answer.claims) == []
        return answer
