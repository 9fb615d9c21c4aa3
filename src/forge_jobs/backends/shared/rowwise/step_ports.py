"""What the rules for steps, waits and events need from a store, apart from its jobs."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from forge_jobs.core.events import NewEvent, Wait, WaitTopic
from forge_jobs.core.instant import Instant
from forge_jobs.core.steps import StepRecord


class JobStep(NamedTuple):
    """A step and the key of its job."""

    job: int
    step: StepRecord


class StoredWait(Struct, frozen=True):
    """The wait of a suspended job, and the epoch of the run that it ended."""

    job: int
    epoch: int
    wait: Wait


class StoredEvent(Struct, frozen=True, gc=False):
    """An event that has its number."""

    seq: int
    topic: str
    sent_at: Instant
    ends_at: Instant
    payload: bytes


class StepTables(Protocol):
    """Steps, waits and events within one write transaction."""

    # Steps. Names are in the order of their code points.

    def find(self, wanted: Sequence[tuple[int, str]]) -> dict[tuple[int, str], StepRecord]:
        """The stored ones of these steps, by the key of the job and the name."""
        ...

    def first(self, job: int, limit: int) -> Sequence[StepRecord]:
        """The first steps of a job, by name."""
        ...

    def having(self, jobs: Iterable[int]) -> set[int]:
        """Those of these jobs that have steps."""
        ...

    def add(self, steps: Sequence[JobStep]) -> None:
        """Store steps whose names are not stored yet."""
        ...

    def delete(self, job: int, began_from: Instant | None = None) -> None:
        """Delete the steps of a job, or those that began at this instant or later."""
        ...

    # Waits.

    def waits_of(self, jobs: Sequence[int]) -> dict[int, StoredWait]:
        """The waits of these jobs, by key."""
        ...

    def add_wait(self, wait: StoredWait) -> None: ...
    def delete_wait(self, job: int) -> None: ...

    def waiting(self, event: StoredEvent, limit: int) -> Sequence[int]:
        """The first jobs with a wait that may take this event, by key."""
        ...

    # Events.

    def first_event(
        self, topic: WaitTopic, began_at: Instant, sent_until: Instant | None
    ) -> StoredEvent | None:
        """The oldest event that a topic of a wait takes: one that was kept when the wait began,
        and that was sent no later than ``sent_until``."""
        ...

    def add_event(self, event: NewEvent) -> StoredEvent:
        """Store an event with the next number."""
        ...

    def take_event_key(self, event: NewEvent) -> bool:
        """Take the dedupe key of an event until its end; False if it is taken."""
        ...

    def open_events(self, limit: int) -> Sequence[StoredEvent]:
        """The oldest events that are not delivered to all jobs that wait for them."""
        ...

    def set_open(self, event: StoredEvent, *, is_open: bool) -> None: ...
