"""How an attempt may end. A handler returns or raises one of the five public outcomes."""

from typing import ClassVar, TypeAlias

from .errors import BadOption
from .instant import Duration, seconds


class JobOutcome(Exception):
    """The end of one attempt; the five kinds are also there as ``JobOutcome.Done`` and so on."""

    Done: "ClassVar[type[Done]]"
    Failed: "ClassVar[type[Failed]]"
    Dead: "ClassVar[type[Dead]]"
    Throttled: "ClassVar[type[Throttled]]"
    Snooze: "ClassVar[type[Snooze]]"


class Done(JobOutcome):
    """Finished; ``value`` is stored as the result."""

    def __init__(self, value: object = None) -> None:
        super().__init__()
        self.value = value


class Failed(JobOutcome):
    """This attempt failed; the job is retried while attempts are left.

    ``retry_after`` is the least wait before the next attempt, where the retry rule says less.
    """

    def __init__(self, message: str = "failed", *, retry_after: Duration | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = (
            0.0 if retry_after is None else seconds(retry_after, field="retry_after")
        )


class Dead(JobOutcome):
    """A permanent error: no retry."""

    def __init__(self, message: str = "permanent error") -> None:
        super().__init__(message)
        self.message = message


class Throttled(JobOutcome):
    """Somebody else's limit was hit: wait and try again without spending an attempt.

    ``retry_after`` is honoured as given; without it the queue's curve decides. ``scope`` names a
    scope declared on the task; without one the whole queue cools down.
    """

    def __init__(self, retry_after: Duration | None = None, scope: str | None = None) -> None:
        super().__init__("throttled")
        self.retry_after_s = (
            None if retry_after is None else seconds(retry_after, field="retry_after")
        )
        self.scope = scope


class Snooze(JobOutcome):
    """Call me again after ``delay``; no attempt is spent."""

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
    """The child process that ran the job alone died; seen by its living parent."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Missing(JobOutcome):
    """No handler for this kind is registered here."""


class Stopped(JobOutcome):
    """The handler ended because a person cancelled the job."""

    def __init__(self, message: str = "cancelled") -> None:
        super().__init__(message)
        self.message = message


AnyOutcome: TypeAlias = Done | Failed | Dead | Throttled | Snooze | Crashed | Missing | Stopped
