"""The contract for events and for the jobs that wait for them."""

from collections.abc import Sequence
from typing import Protocol

from forge_jobs.core.events import EventRecord, NewEvent, SentEvent, WaitRecord


class EventStore(Protocol):
    """Sends events, and shows events and waits.

    An event is delivered once: it gets its ``seq``, and each suspended job that waits for its topic
    is resumed in the transaction that stores the event as a step of that job. Whoever deletes the
    waits of a job decides its wait, holding the job's row, only if the job is still suspended under
    the epoch of the wait.
    """

    async def send(self, events: Sequence[NewEvent]) -> list[SentEvent]:
        """Store events in one durable transaction and deliver them; one answer per event.

        One call resumes at most 500 jobs; the next exchanges, or ``deliver``, resume the others.
        Queues of resumed jobs are notified.
        """
        ...

    async def deliver(self, *, limit: int) -> int:
        """Deliver events that are not delivered to all jobs that wait for them; how many jobs were
        resumed, at most ``limit``. Also finds waits that an earlier delivery missed."""
        ...

    async def page(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        limit: int,
        before: int | None = None,
    ) -> list[EventRecord]:
        """Stored events, the newest first: those of a name, of a name and key, or all. ``before``
        continues after the event with that ``seq``."""
        ...

    async def waits(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        job_id: str | None = None,
        limit: int,
        after: tuple[str, str, str] | None = None,
    ) -> list[WaitRecord]:
        """What suspended jobs wait for, in the order of name, key and job: of a name, of a name and
        key, of one job, or all. ``after`` is (name, key, job id) of the last one known."""
        ...
