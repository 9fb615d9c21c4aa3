"""What the steps of a handler need from where they are stored."""

from typing import Protocol

from forge_jobs.core.events import Wait
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Claim
from forge_jobs.core.steps import StepRecord, StepWrite


class StepPort(Protocol):
    """Where the steps of one run are stored: the worker process, from its own loop, from a thread
    or from a child process; or nowhere, for a plain call.

    ``allows_sync``: no method suspends its caller, it blocks instead, so that code without an event
    loop can use it. ``takes_no_time``: a sleep is over at once. ``claim`` fences what is stored;
    ``job_id`` is public.
    """

    @property
    def allows_sync(self) -> bool: ...
    @property
    def allows_async(self) -> bool: ...
    @property
    def takes_no_time(self) -> bool: ...
    @property
    def claim(self) -> Claim: ...
    @property
    def job_id(self) -> str: ...
    @property
    def enqueued_at(self) -> Instant: ...

    def check_caller(self) -> None:
        """BadStep if the run has ended, or if this is not the handler's thread or loop."""
        ...

    def now(self) -> Instant:
        """Store time."""
        ...

    def count(self) -> int:
        """How many steps are stored, as far as they were read."""
        ...

    def check_room(self, name: str, size: int) -> None:
        """BadStep if a step of that many bytes would exceed the limits of a history."""
        ...

    async def find(self, name: str) -> StepRecord | None:
        """What is stored under a name."""
        ...

    async def store(self, step: StepWrite) -> StepRecord | None:
        """Store a step; None if it is stored as given, else what was stored before."""
        ...

    async def check_wait(self, wait: Wait) -> StepRecord | None:
        """Take an event for this wait, if one is there."""
        ...

    async def sleep_is_over(self, instant: Instant) -> bool:
        """Whether a stored sleep that ends in the future was ended by an operator."""
        ...

    def park(
        self, wait: Wait | None, wake_at: Instant | None, steps: tuple[StepWrite, ...], where: str
    ) -> None:
        """The handler is unwound next; ``where`` is the sleep or wait, as people read it."""
        ...

    async def store_in(self, transaction: object, step: StepWrite, shown: str) -> None:
        """Store a step in the caller's transaction."""
        ...

    async def check_committed(self) -> None:
        """BadStep if a step was stored in a transaction that is not committed."""
        ...

    async def pause(self, seconds: float) -> None:
        """Wait in place."""
        ...

    def retry_later(self, error: BaseException, delay_s: float) -> None:
        """If the run fails with this error, its retry is due after ``delay_s``."""
        ...

    def warn(self, text: str) -> None:
        """A line in the job's log and in the worker's."""
        ...
