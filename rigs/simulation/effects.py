"""From a call that took effect to the records the checkers read."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.limits import Limit
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.jobs import Exchange, Exchanged
from forge_jobs.store.processes import HeartbeatReply, NewProcess
from forge_jobs.store.queues import QueueChange
from rigs.simulation.history import (
    Beaten,
    Bound,
    Claimed,
    Finished,
    History,
    Left,
    Limited,
    Moved,
    Paused,
    Registered,
    Shared,
    Slotted,
    Stored,
)


class Numbered(msgspec.Struct):
    """What every payload of the simulated workload begins with."""

    number: int | None = None


class RowView(Protocol):
    """What a backend's row shows of itself."""

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
    """Writes what the store did into the history, at the instant it did it."""

    def __init__(self, history: History, now: Callable[[], int]) -> None:
        self._history = history
        self._now = now
        self._who = "world"
        self._owners: dict[str, int] = {}
        self._holders: dict[int, int] = {}

    def acting(self, who: str) -> None:
        """From here on, moves are this actor's doing."""
        self._who = who

    def moved(self, row: RowView, event: Event, source: JobStatus | None, *, gone: bool) -> None:
        """A row changed its state; ``row`` is as it stands after the move."""
        former = self._holders.pop(row.key, None)
        owner = row.owner if row.status is JobStatus.RUNNING else None
        if owner is not None:
            self._holders[row.key] = owner
        target = None if gone else row.status
        self._history.add(
            Moved(
                self._now(), self._who, row.key, event, source, target, row.epoch, row.attempts,
                owner, former,
            )
        )  # fmt: skip

    def bound(self, key: int, job: NewJob) -> None:
        """A job of the bound workload was stored."""
        self._history.add(
            Bound(self._now(), self._who, key, job.kind, job.limit_key, job.lane, job.order)
        )

    def slotted(self, who: str, queue: str, slots: int) -> None:
        """A queue was given so many slots."""
        self._history.add(Slotted(self._now(), who, queue, slots))

    def shared(self, owner: int, queue: str, slots: int, held: int) -> None:
        """A process has so many slots of a queue now."""
        self._history.add(Shared(self._now(), self._who, owner, queue, slots, held))

    def done(
        self, who: str, op: str, args: Sequence[Any], options: dict[str, Any], result: Any
    ) -> None:
        """Record the effect of one call, if checkers care for it."""
        match op:
            case "jobs.exchange":
                self._exchange(who, args[0], result)
            case "jobs.enqueue":
                self._enqueue(who, args[0], result)
            case "processes.register":
                self._register(who, args[0], options.get("replaces"), result)
            case "processes.heartbeat":
                heartbeat: HeartbeatReply = result
                self._history.add(Beaten(self._now(), who, args[0], heartbeat.alive))
            case "processes.deregister":
                self._history.add(Left(self._now(), who, args[0]))
            case "queues.change":
                change: QueueChange = args[1]
                if change.paused is not UNSET:
                    self._history.add(Paused(self._now(), who, args[0], change.paused))
                if change.slots is not UNSET:
                    self.slotted(who, args[0], change.slots)
            case "limits.change":
                limit: Limit = result
                self._history.add(Limited(self._now(), who, limit.name, limit.concurrency))
            case _:
                pass

    def _exchange(self, who: str, request: Exchange, answer: Exchanged) -> None:
        at, owner = self._now(), request.owner
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
        # Whoever registers again under its own name is not its former self any more.
        names = [name for name in (replaces, process.host_id) if name is not None]
        replaced = tuple(self._owners[name] for name in names if name in self._owners)
        self._owners[process.host_id] = key
        lease_us = round(process.lease_s * SECOND)
        self._history.add(Registered(self._now(), who, key, lease_us, replaced))
