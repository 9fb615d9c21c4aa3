"""Sleeps and waits for events of a handler."""

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from forge_jobs.core.custom_types import from_json
from forge_jobs.core.errors import BadOption, BadStep, WaitTimeout
from forge_jobs.core.events import (
    MAX_WAIT_TOPICS,
    TakenEvent,
    Wait,
    WaitTopic,
    event_key,
    event_name,
    topic_of,
)
from forge_jobs.core.instant import Duration, Instant, after, from_datetime, seconds, to_datetime
from forge_jobs.core.steps import StepKind, StepRecord, StepWrite, deadline_name

from .handler_steps import HandlerSteps
from .names import CalledStep
from .unset import Unset

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReceivedEvent(Generic[T]):
    """The event that a wait for one of several names took.

    >>> @forge.task
    ... async def fulfil(order: int, ctx: Context) -> str:
    ...     event = await ctx.wait_for(["paid", "refused"], key=order, timeout="3d")
    ...     return event.name
    >>> job = fulfil.enqueue(7)
    >>> sent = forge.send("paid", {"cents": 5}, key=7)
    >>> report = forge.drain().run()
    >>> job.result(timeout=10)
    'paid'
    """

    name: str
    payload: T
    sent_at: datetime


@dataclass(frozen=True, slots=True)
class WaitRequest:
    """The arguments of ``ctx.wait_for``, checked."""

    names: tuple[str, ...]
    is_list: bool
    key: object
    timeout_s: float | None
    type: Any
    default: object
    since: Duration | Unset | None

    @property
    def shown(self) -> str:
        """The wait as people read it."""
        key = event_key(self.key)
        names = ", ".join(map(repr, self.names))
        return f"wait_for({names}, key={key!r})" if key else f"wait_for({names})"


def wait_request(
    names: str | Sequence[str],
    key: object,
    timeout: Duration | None,
    type: Any,
    default: object,
    since: Duration | Unset | None,
) -> WaitRequest:
    """Checked arguments, or BadName, BadOption, BadDuration."""
    is_list = not isinstance(names, str)
    listed = tuple(map(event_name, names if is_list else (names,)))
    if not listed:
        raise BadOption("ctx.wait_for([]) waits for nothing: name at least one event")
    if len(listed) > MAX_WAIT_TOPICS // 2:
        raise BadOption(
            f"ctx.wait_for takes at most {MAX_WAIT_TOPICS // 2} names, {len(listed)} were given"
        )
    event_key(key)
    if not isinstance(since, Unset | None):
        seconds(since, field="since")
    timeout_s = None if timeout is None else seconds(timeout, field="timeout")
    return WaitRequest(listed, is_list, key, timeout_s, type, default, since)


def sleep(
    steps: HandlerSteps, span: Duration | None, until: datetime | None, name: str, *, is_sync: bool
) -> Coroutine[Any, Any, None]:
    """Begin a sleep of ``span``, or until a moment."""
    if (span is None) == (until is None):
        raise BadOption('ctx.sleep needs a duration or until=: ctx.sleep("2h")')
    span_s = None if span is None else seconds(span, field="sleep")
    end = None if until is None else from_datetime(until, field="until")
    steps.check("ctx.sleep", is_sync=is_sync)
    return _sleep(steps, steps.names.call(name, is_sync=is_sync), span_s, end)


async def _sleep(
    steps: HandlerSteps, step: CalledStep, span_s: float | None, end: Instant | None
) -> None:
    port = steps.port
    returned = False
    steps.enter(step)
    try:
        record, now = await port.find(step.identity), port.now()
        writes: tuple[StepWrite, ...] = ()
        if record is None:
            instant = after(now, span_s or 0.0) if end is None else end
            if instant > now:
                port.check_room(step.identity, 0)
                writes = (_instant(steps, step.identity, instant, now),)
        elif record.kind is StepKind.SLEEP:
            instant = msgspec.json.decode(record.value or b"0", type=int)
            if instant > now and await port.sleep_is_over(instant):
                instant = now
        else:
            raise steps.other_kind(step, record, "a sleep")
        if instant > now and not port.takes_no_time:
            shown = f"the sleep {step.shown!r} until {to_datetime(instant).isoformat()}"
            await steps.block(step, shown, wait=None, wake_at=instant, steps=writes)
        returned = True
    finally:
        steps.leave(step, returned=returned)


def wait_for(
    steps: HandlerSteps, request: WaitRequest, name: str | None, *, is_sync: bool
) -> Coroutine[Any, Any, Any]:
    """Begin a wait."""
    steps.check("ctx.wait_for", is_sync=is_sync)
    if steps.open_wait is not None:
        raise BadStep(
            f"{request.shown} is called while {steps.open_wait} is open: a run waits for one thing "
            f"at a time. Wait for a list: ctx.wait_for([{request.names[0]!r}, ...])"
        )
    default = "wait:" + "|".join(request.names)
    step = steps.names.call(default[:200] if name is None else name, is_sync=is_sync)
    if not is_sync:
        steps.open_wait = request.shown
    return _wait_for(steps, step, request)


async def _wait_for(steps: HandlerSteps, step: CalledStep, request: WaitRequest) -> Any:
    returned = False
    steps.enter(step)
    try:
        record = await steps.port.find(step.identity)
        if record is None:
            record = await _ended_wait(steps, step, request)
        returned = True
        return _taken(steps, step, request, record)
    finally:
        steps.open_wait = None
        steps.leave(step, returned=returned)


async def _ended_wait(steps: HandlerSteps, step: CalledStep, request: WaitRequest) -> StepRecord:
    """What the wait ended with; Suspended if it goes on after this run."""
    port = steps.port
    await port.check_committed()
    port.check_room(step.identity, 0)
    now = began_at = port.now()
    deadline, writes = None, tuple[StepWrite, ...]()
    if request.timeout_s is not None:
        # The deadline of an earlier run holds: this one may have begun because of something else.
        kept = await port.find(deadline_name(step.identity))
        if kept is None:
            deadline = after(now, request.timeout_s)
            writes = (_instant(steps, deadline_name(step.identity), deadline, now),)
        else:
            deadline = msgspec.json.decode(kept.value or b"0", type=int)
            # So does its beginning: a retry from this step deletes its deadline too.
            began_at = kept.began_at
    wait = Wait(step.identity, began_at, _topics(steps, request, now), deadline)
    record = await port.check_wait(wait)
    if record is not None:
        return record
    if deadline is not None and deadline <= now:
        claim = port.claim
        write = StepWrite(claim.key, claim.epoch, step.identity, StepKind.TIMEOUT, began_at, now)
        return await port.store(write) or _record(write)
    await steps.block(step, request.shown, wait=wait, wake_at=deadline, steps=writes)
    raise AssertionError("a run that parks does not go on")


def _topics(steps: HandlerSteps, request: WaitRequest, now: Instant) -> tuple[WaitTopic, ...]:
    key = event_key(request.key)
    keys = (key,) if key else ("", steps.port.job_id)
    if isinstance(request.since, Unset):
        since = steps.port.enqueued_at
    elif request.since is None:
        since = 0
    else:
        since = max(0, after(now, -seconds(request.since, field="since")))
    topics = dict.fromkeys(topic_of(name, one) for name in request.names for one in keys)
    return tuple(WaitTopic(topic, since=since) for topic in topics)


def _taken(steps: HandlerSteps, step: CalledStep, request: WaitRequest, record: StepRecord) -> Any:
    if record.kind is StepKind.TIMEOUT:
        if not isinstance(request.default, Unset):
            return request.default
        raise WaitTimeout(f"{request.shown}: no event was sent before the deadline")
    if record.kind is not StepKind.EVENT:
        raise steps.other_kind(step, record, "a wait")
    taken = msgspec.json.decode(record.value or b"", type=TakenEvent)
    if taken.name not in request.names:
        steps.port.warn(
            f"{request.shown} uses the event {taken.name!r} that an earlier version of the code "
            f"waited for in its place; name= tells waits apart"
        )
    try:
        payload = _decoded(taken.payload, request.type)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise BadStep(
            f"{request.shown}: the payload of the event does not fit type="
            f"{getattr(request.type, '__name__', request.type)}: {error}. Let the type accept it, "
            "or retry the job from this step"
        ) from error
    if request.is_list:
        return ReceivedEvent(taken.name, payload, taken.moment)
    return payload


def _decoded(data: msgspec.Raw, wanted: Any) -> Any:
    if wanted is None:
        return msgspec.json.decode(data)
    return msgspec.json.decode(data, type=wanted, dec_hook=from_json)


def _instant(steps: HandlerSteps, name: str, instant: Instant, now: Instant) -> StepWrite:
    claim = steps.port.claim
    return StepWrite(
        claim.key, claim.epoch, name, StepKind.SLEEP, now, instant, str(instant).encode()
    )


def _record(write: StepWrite) -> StepRecord:
    return StepRecord(write.name, write.kind, write.epoch, write.began_at, write.ended_at)
