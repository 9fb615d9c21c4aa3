"""What a Context offers for steps: ``step``, ``sleep``, ``wait_for``, ``restart``."""

from collections.abc import Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from forge_jobs.core.instant import Duration
from forge_jobs.core.outcome import Restarted

from .unset import UNSET, Unset

if TYPE_CHECKING:
    from .callers import StepCaller, SyncStepCaller
    from .handler_steps import HandlerSteps
    from .waiting import ReceivedEvent

T = TypeVar("T")
D = TypeVar("D")
# Not Sequence[str]: a str is one too.
EventNames: TypeAlias = list[str] | tuple[str, ...]


class ContextSteps:
    """The part of ``Context`` that is about steps. What it needs is imported by its first use:
    most handlers have no steps."""

    __slots__ = ()

    def _handler_steps(self) -> "HandlerSteps":
        raise NotImplementedError

    def _payload_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        raise NotImplementedError

    @property
    def step(self) -> "StepCaller":
        """Runs a function once in the life of the job, and stores its value before it returns:
        ``await ctx.step("charge", charge, order)``. Options: ``ctx.step.using(...)``."""
        steps = self._handler_steps()
        if steps.caller is None:
            from .callers import StepCaller

            steps.caller = StepCaller(steps)
        return steps.caller

    @property
    def step_sync(self) -> "SyncStepCaller":
        """``step`` for ``def`` handlers."""
        from .callers import SyncStepCaller

        return SyncStepCaller(self._handler_steps())

    @property
    def steps(self) -> int:
        """How many steps, sleeps and waits of this job are stored, as far as this run has come."""
        return self._handler_steps().port.count()

    def sleep(
        self, span: Duration | None = None, *, until: datetime | None = None, name: str = "sleep"
    ) -> Coroutine[Any, Any, None]:
        """Go on after ``span``, or at a moment: ``await ctx.sleep("2h")``. The run ends meanwhile:
        its slot is free, and no attempt is spent."""
        from .waiting import sleep

        return sleep(self._handler_steps(), span, until, name, is_sync=False)

    def sleep_sync(
        self, span: Duration | None = None, *, until: datetime | None = None, name: str = "sleep"
    ) -> None:
        """``sleep`` for ``def`` handlers."""
        from .callers import run_blocking
        from .waiting import sleep

        run_blocking(sleep(self._handler_steps(), span, until, name, is_sync=True))

    def restart(self, *args: Any, **kwargs: Any) -> Restarted:
        """``raise ctx.restart(order)`` begins the job anew at once, with these arguments and
        without its steps. Events that it has taken are not taken again."""
        return Restarted(self._payload_of(args, kwargs))

    @overload
    def wait_for(
        self,
        event: str,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: None = None,
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> Coroutine[Any, Any, Any]: ...
    @overload
    def wait_for(
        self,
        event: str,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: None = None,
        default: object,
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> Coroutine[Any, Any, Any]: ...
    @overload
    def wait_for(
        self,
        event: str,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: type[T],
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def wait_for(
        self,
        event: str,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: type[T],
        default: D,
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> Coroutine[Any, Any, T | D]: ...
    @overload
    def wait_for(
        self,
        event: EventNames,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: None = None,
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> "Coroutine[Any, Any, ReceivedEvent[Any]]": ...
    @overload
    def wait_for(
        self,
        event: EventNames,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: None = None,
        default: D,
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> "Coroutine[Any, Any, ReceivedEvent[Any] | D]": ...
    @overload
    def wait_for(
        self,
        event: EventNames,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: type[T],
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> "Coroutine[Any, Any, ReceivedEvent[T]]": ...
    @overload
    def wait_for(
        self,
        event: EventNames,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: type[T],
        default: D,
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> "Coroutine[Any, Any, ReceivedEvent[T] | D]": ...

    def wait_for(
        self,
        event: str | EventNames,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: Any = None,
        default: Any = UNSET,
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> Any:
        """Wait for an event: ``await ctx.wait_for("paid", key=7, timeout="3d", type=Payment)``.

        The oldest event of that name and key counts that was sent since the job was enqueued and
        that the job has not taken yet; without ``key``, events without one and those of
        ``job.send``. ``since`` widens it: a span back from now, or None for all that are kept.
        Returns the payload, or for a list of names an object with ``name``, ``payload`` and
        ``sent_at``. WaitTimeout at the deadline, or ``default`` if it is given. The run ends
        meanwhile. ``name`` is the name of its step.
        """
        from .waiting import wait_for, wait_request

        request = wait_request(event, key, timeout, type, default, since)
        return wait_for(self._handler_steps(), request, name, is_sync=False)

    @overload
    def wait_for_sync(
        self,
        event: str,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: None = None,
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> Any: ...
    @overload
    def wait_for_sync(
        self,
        event: str,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: None = None,
        default: object,
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> Any: ...
    @overload
    def wait_for_sync(
        self,
        event: str,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: type[T],
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> T: ...
    @overload
    def wait_for_sync(
        self,
        event: str,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: type[T],
        default: D,
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> T | D: ...
    @overload
    def wait_for_sync(
        self,
        event: EventNames,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: None = None,
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> "ReceivedEvent[Any]": ...
    @overload
    def wait_for_sync(
        self,
        event: EventNames,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: None = None,
        default: D,
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> "ReceivedEvent[Any] | D": ...
    @overload
    def wait_for_sync(
        self,
        event: EventNames,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: type[T],
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> "ReceivedEvent[T]": ...
    @overload
    def wait_for_sync(
        self,
        event: EventNames,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: type[T],
        default: D,
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> "ReceivedEvent[T] | D": ...

    def wait_for_sync(
        self,
        event: str | EventNames,
        /,
        *,
        key: object = None,
        timeout: Duration | None = None,
        type: Any = None,
        default: Any = UNSET,
        since: Duration | Unset | None = UNSET,
        name: str | None = None,
    ) -> Any:
        """``wait_for`` for ``def`` handlers."""
        from .callers import run_blocking
        from .waiting import wait_for, wait_request

        request = wait_request(event, key, timeout, type, default, since)
        return run_blocking(wait_for(self._handler_steps(), request, name, is_sync=True))
