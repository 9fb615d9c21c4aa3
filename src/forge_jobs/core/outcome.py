"""The outcomes of an attempt.

A handler returns or raises one of the public ones: Done, Failed, Dead, Throttled, Snooze. The
engine adds Crashed, Missing and Stopped, and Parked and Restarted for handlers with steps.
"""

from typing import ClassVar, TypeAlias

from .errors import BadOption
from .events import Wait
from .instant import Duration, Instant, seconds
from .steps import StepWrite


class JobOutcome(Exception):
    """The outcome of one attempt; the public ones are also ``JobOutcome.Done`` and so on.

    ``traceback`` is stored with the error of a failed attempt: the engine sets it when the handler
    raised.

    >>> JobOutcome.Snooze is Snooze
    True
    """

    traceback: str | None = None

    Done: "ClassVar[type[Done]]"
    Failed: "ClassVar[type[Failed]]"
    Dead: "ClassVar[type[Dead]]"
    Throttled: "ClassVar[type[Throttled]]"
    Snooze: "ClassVar[type[Snooze]]"


class Done(JobOutcome):
    """Finished; ``value`` is stored as the result.

    >>> @forge.task
    ... def count() -> JobOutcome:
    ...     return Done(3)  # the same as: return 3
    >>> job = count.enqueue()
    >>> report = forge.drain().run()
    >>> job.result(timeout=10)
    3
    """

    def __init__(self, value: object = None) -> None:
        super().__init__()
        self.value = value


class Failed(JobOutcome):
    """This attempt failed; the job is retried while attempts are left.

    ``retry_after`` is the least wait before the next attempt, where the retry rule says less.

    >>> @forge.task
    ... def poll() -> JobOutcome:
    ...     return Failed("no answer yet", retry_after=60)
    >>> job = poll.enqueue()
    >>> report = forge.drain().run()
    >>> job.refresh().error
    'no answer yet'
    """

    def __init__(self, message: str = "failed", *, retry_after: Duration | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = (
            0.0 if retry_after is None else seconds(retry_after, field="retry_after")
        )


class Dead(JobOutcome):
    """A permanent error: no retry.

    >>> @forge.task
    ... def charge(card: str) -> None:
    ...     if not card.isdigit():
    ...         raise Dead("not a card number")
    >>> job = charge.enqueue("visa")
    >>> report = forge.drain().run()
    >>> job.refresh().status.value
    'dead'
    """

    def __init__(self, message: str = "permanent error") -> None:
        super().__init__(message)
        self.message = message


class Throttled(JobOutcome):
    """An external rate limit was hit: try again later without spending an attempt.

    ``retry_after`` is used as given; without it the back-off of the queue decides. ``scope`` names
    a scope declared on the task; without one, or with another, the gate of the whole queue closes.

    >>> @forge.task(scopes=["smtp"])
    ... def deliver(to: str) -> None:
    ...     raise Throttled(retry_after=30, scope="smtp")
    >>> job = deliver.enqueue("a@b.c")
    >>> report = forge.drain().run()
    >>> job.refresh().attempts
    0
    """

    def __init__(self, retry_after: Duration | None = None, scope: str | None = None) -> None:
        super().__init__("throttled")
        self.retry_after_s = (
            None if retry_after is None else seconds(retry_after, field="retry_after")
        )
        self.scope = scope


class Snooze(JobOutcome):
    """Run the job again after ``delay``; no attempt is spent.

    >>> @forge.task
    ... def wait_for_file(path: str) -> None:
    ...     raise Snooze("10m")
    >>> job = wait_for_file.enqueue("a.csv")
    >>> report = forge.drain().run()
    >>> job.refresh().attempts
    0
    """

    def __init__(self, delay: Duration) -> None:
        super().__init__("snoozed")
        self.delay_s = seconds(delay, field="delay")
        if self.delay_s <= 0:
            raise BadOption("Snooze(delay) must be longer than zero: an immediate one would spin")


JobOutcome.Done = Done
JobOutcome.Failed = Failed
JobOutcome.Dead = Dead
JobOutcome.Throttled = Throttled
JobOutcome.Snooze = Snooze


class Crashed(JobOutcome):
    """The child process that ran only this job died; its parent, still alive, saw it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Missing(JobOutcome):
    """This process cannot run the job, but a worker of another version may.

    Without ``message`` it has no handler for the kind. Otherwise its signature does not take the
    arguments: ``message`` says why, ``names`` and ``by_value`` as in ``ArgumentMismatch``.
    ``elsewhere``: whether a living worker may take it; None before that was looked up.
    """

    def __init__(
        self,
        message: str = "",
        *,
        names: tuple[str, ...] | None = None,
        by_value: bool = False,
        elsewhere: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.names = names
        self.by_value = by_value
        self.elsewhere = elsewhere


class Stopped(JobOutcome):
    """The handler ended because the job was cancelled."""

    def __init__(self, message: str = "cancelled") -> None:
        super().__init__(message)
        self.message = message


class Parked(JobOutcome):
    """The run ends until ``wake_at``, until an event of ``wait`` is sent, or until whichever comes
    first; no attempt is spent. ``steps`` are the sleeps that began in this run."""

    def __init__(
        self, wait: Wait | None, wake_at: Instant | None, steps: tuple[StepWrite, ...] = ()
    ) -> None:
        super().__init__("parked")
        self.wait = wait
        self.wake_at = wake_at
        self.steps = steps


class Restarted(JobOutcome):
    """The job starts again at once with ``payload`` and without its steps; ``steps`` are the
    cursors that it keeps."""

    def __init__(self, payload: bytes, steps: tuple[StepWrite, ...] = ()) -> None:
        super().__init__("restarted")
        self.payload = payload
        self.steps = steps


AnyOutcome: TypeAlias = (
    Done | Failed | Dead | Throttled | Snooze | Crashed | Missing | Stopped | Parked | Restarted
)
