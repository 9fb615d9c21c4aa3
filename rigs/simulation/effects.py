"""Records the effects of store calls in the history, for the checkers."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from forge_jobs.backends.shared.rowwise.step_ports import JobStep, StoredEvent, StoredWait
from forge_jobs.core.events import TakenEvent, topic_of
from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.limits import Limit
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.steps import StepKind
from forge_jobs.store.jobs import Exchange, Exchanged, Verdict
from forge_jobs.store.processes import HeartbeatReply, NewProcess
from forge_jobs.store.queues import QueueChange
from rigs.simulation.history import (
    Bound,
    Claimed,
    Deregistered,
    EventStored,
    Finished,
    HeartbeatReceived,
    History,
    LimitChanged,
    Paused,
    Registered,
    ShareChanged,
    SlotsChanged,
    StepRefused,
    StepsDeleted,
    StepStored,
    Stored,
    Transitioned,
    WaitDeleted,
    WaitStored,
)


class Numbered(msgspec.Struct):
    """The field that every payload of the simulated workload has."""

    number: int | None = None


class RowView(Protocol):
    """The fields of a backend's row that are recorded."""

    @property
    def key(self) -> int: ...
    @property
    def status(self) -> JobStatus: ...
    @property
    def epoch(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def owner(self) -> int | None: ...


class Recorder:
    """Records what the store did, at the instant of the effect."""

    def __init__(self, history: History, now: Callable[[], int]) -> None:
        self._history = history
        self._now = now
        self._who = "world"
        self._owners: dict[str, int] = {}
        self._holders: dict[int, int] = {}

    def set_actor(self, who: str) -> None:
        """Attribute the following transitions to this actor."""
        self._who = who

    def transitioned(
        self, row: RowView, event: Event, source: JobStatus | None, *, gone: bool
    ) -> None:
        """A row changed its state; ``row`` has the state after the transition."""
        former = self._holders.pop(row.key, None)
        owner = row.owner if row.status is JobStatus.RUNNING else None
        if owner is not None:
            self._holders[row.key] = owner
        target = None if gone else row.status
        self._history.add(
            Transitioned(
                self._now(), self._who, row.key, event, source, target, row.epoch, row.attempts,
                owner, former,
            )
        )  # fmt: skip

    def bound(self, key: int, job: NewJob) -> None:
        """A job with limits or lanes was stored."""
        self._history.add(
            Bound(self._now(), self._who, key, job.kind, job.limit_key, job.lane, job.order)
        )

    def step_stored(self, added: JobStep, row: RowView | None) -> None:
        """A step was stored; ``row`` is its job."""
        step = added.step
        topic, seq = "", 0
        if step.kind is StepKind.EVENT and step.value is not None:
            taken = msgspec.json.decode(step.value, type=TakenEvent)
            topic, seq = topic_of(taken.name, taken.key), taken.seq
        self._history.add(
            StepStored(
                self._now(), self._who, added.job, step.name, step.kind, step.epoch,
                (step.value or b"").decode(), None if row is None else row.status,
                -1 if row is None else row.epoch, topic, seq,
            )
        )  # fmt: skip

    def steps_deleted(self, key: int, names: tuple[str, ...], *, by_retry: bool) -> None:
        """Steps of a job were deleted."""
        self._history.add(StepsDeleted(self._now(), self._who, key, names, by_retry))

    def wait_stored(self, stored: StoredWait) -> None:
        """A job was suspended."""
        topics = tuple((topic.topic, topic.after, topic.since) for topic in stored.wait.topics)
        self._history.add(WaitStored(self._now(), self._who, stored.job, stored.wait.step, topics))

    def wait_deleted(self, key: int) -> None:
        """A job waits no longer."""
        self._history.add(WaitDeleted(self._now(), self._who, key))

    def event_stored(self, event: StoredEvent) -> None:
        """An event was sent."""
        self._history.add(
            EventStored(self._now(), self._who, event.seq, event.topic, event.sent_at)
        )

    def slots_changed(self, who: str, queue: str, slots: int) -> None:
        """A queue was given so many slots."""
        self._history.add(SlotsChanged(self._now(), who, queue, slots))

    def share_changed(self, owner: int, queue: str, slots: int, held: int) -> None:
        """A process has so many slots of a queue now."""
        self._history.add(ShareChanged(self._now(), self._who, owner, queue, slots, held))

    def done(
        self, who: str, op: str, args: Sequence[Any], options: dict[str, Any], result: Any
    ) -> None:
        """Record the effect of one call, if a checker needs it."""
        match op:
            case "jobs.exchange":
                self._exchange(who, args[0], result)
            case "jobs.enqueue":
                self._enqueue(who, args[0], result)
            case "processes.register":
                self._register(who, args[0], options.get("replaces"), result)
            case "processes.heartbeat":
                heartbeat: HeartbeatReply = result
                self._history.add(HeartbeatReceived(self._now(), who, args[0], heartbeat.alive))
            case "processes.deregister":
                self._history.add(Deregistered(self._now(), who, args[0]))
            case "queues.change":
                change: QueueChange = args[1]
                if change.paused is not UNSET:
                    self._history.add(Paused(self._now(), who, args[0], change.paused))
                if change.slots is not UNSET:
                    self.slots_changed(who, args[0], change.slots)
            case "limits.change":
                limit: Limit = result
                self._history.add(LimitChanged(self._now(), who, limit.name, limit.concurrency))
            case _:
                pass

    def _exchange(self, who: str, request: Exchange, answer: Exchanged) -> None:
        at, owner = self._now(), request.owner
        for step, said in zip(request.steps, answer.steps, strict=True):
            if said.verdict is not Verdict.APPLIED:
                self._history.add(
                    StepRefused(at, who, owner, step.key, step.epoch, step.name, said.verdict)
                )
        for finish, verdict in zip(request.finish, answer.verdicts, strict=True):
            self._history.add(
                Finished(
                    at, who, owner, finish.key, finish.epoch, finish.status, verdict,
                    len(finish.jobs),
                )
            )  # fmt: skip
        for job in answer.claims:
            self._history.add(
                Claimed(
                    at, who, owner, job.key, job.epoch, job.queue, job.run_at, answer.now,
                    job.started,
                )
            )  # fmt: skip

    def _enqueue(self, who: str, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        for job, answer in zip(jobs, answers, strict=True):
            number = msgspec.json.decode(job.payload, type=Numbered).number
            self._history.add(
                Stored(self._now(), who, answer.key, answer.id, answer.duplicate, number)
            )

    def _register(self, who: str, process: NewProcess, replaces: str | None, key: int) -> None:
        # A process that registers again under its host_id replaces its former registration.
        names = [name for name in (replaces, process.host_id) if name is not None]
        replaced = tuple(self._owners[name] for name in names if name in self._owners)
        self._owners[process.host_id] = key
        lease_us = round(process.lease_s * SECOND)
        self._history.add(Registered(self._now(), who, key, lease_us, replaced))
