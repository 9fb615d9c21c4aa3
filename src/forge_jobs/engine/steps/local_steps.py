"""The steps of a plain call: functions run in place, nothing is stored, sleeps take no time."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

import msgspec

from forge_jobs.core.errors import BadStep
from forge_jobs.core.events import NewEvent, TakenEvent, Wait, name_and_key
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Claim
from forge_jobs.core.steps import StepKind, StepRecord, StepWrite
from forge_jobs.kit.clock import Clock

# What plain calls find as sent: ``forge_jobs.testing.events`` sets it.
given_events: ContextVar[list[NewEvent]] = ContextVar("forge_given_events")
_CLAIM = Claim(0, 1)


@dataclass(slots=True)
class LocalSteps:
    """The ``StepPort`` of a plain call."""

    job_id: str
    clock: Clock
    on_warning: Callable[[str], None]
    claim: Claim = _CLAIM
    allows_sync: bool = True
    allows_async: bool = True
    takes_no_time: bool = True
    _stored: dict[str, StepRecord] = field(default_factory=dict[str, StepRecord])

    @property
    def enqueued_at(self) -> Instant:
        """As the port says."""
        return self.clock.now()

    def check_caller(self) -> None:
        """As the port says."""

    def now(self) -> Instant:
        """As the port says."""
        return self.clock.now()

    def count(self) -> int:
        """As the port says."""
        return len(self._stored)

    def check_room(self, name: str, size: int) -> None:
        """As the port says."""

    async def find(self, name: str) -> StepRecord | None:
        """As the port says."""
        return self._stored.get(name)

    async def store(self, step: StepWrite) -> StepRecord | None:
        """As the port says."""
        self._stored[step.name] = StepRecord(
            step.name, step.kind, step.epoch, step.began_at, step.ended_at, step.value
        )
        return None

    async def check_wait(self, wait: Wait) -> StepRecord | None:
        """As the port says: takes a given event; without one, time passes up to the deadline."""
        given = given_events.get([])
        topics = {name_and_key(one.topic) for one in wait.topics}
        kind, value = StepKind.TIMEOUT, None
        for index, event in enumerate(given):
            if (event.name, event.key) in topics:
                del given[index]
                kind, payload = StepKind.EVENT, msgspec.Raw(event.payload)
                taken = TakenEvent(event.name, event.key, self.now(), 1, payload)
                value = msgspec.json.encode(taken)
                break
        else:
            if wait.deadline is None:
                names = ", ".join(sorted({repr(name) for name, _ in topics}))
                raise BadStep(
                    f"a plain call of a task cannot wait for the event {names}: give it with "
                    "forge_jobs.testing.events(...), or enqueue the job, send the event with "
                    "forge.send(...) and run both with forge.drain()"
                )
        record = StepRecord(wait.step, kind, 1, wait.began_at, self.now(), value)
        self._stored[wait.step] = record
        return record

    async def sleep_is_over(self, instant: Instant) -> bool:
        """As the port says."""
        return True

    def park(
        self, wait: Wait | None, wake_at: Instant | None, steps: tuple[StepWrite, ...], where: str
    ) -> None:
        """Never called: nothing is waited for."""
        raise AssertionError("a plain call does not park")

    async def store_in(self, transaction: object, step: StepWrite, shown: str) -> None:
        """As the port says; the transaction is the caller's own."""
        await self.store(step)

    async def check_committed(self) -> None:
        """As the port says."""

    async def pause(self, seconds: float) -> None:
        """As the port says: no time passes."""

    def retry_later(self, error: BaseException, delay_s: float) -> None:
        """As the port says: a plain call is not retried."""

    def warn(self, text: str) -> None:
        """As the port says."""
        self.on_warning(text)
