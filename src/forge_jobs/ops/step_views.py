"""One step of a job for display."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import UNSET, UnsetType

from forge_jobs.core.events import WaitRecord
from forge_jobs.core.instant import SECOND, Instant, to_datetime
from forge_jobs.core.steps import StepKind, StepRecord, shown_step
from forge_jobs.kit import redact

from .views import View


class StepState(StrEnum):
    """*stored*: it has a value. *error*: it holds an error that its caller declared. *timeout*: a
    wait whose deadline passed. *open*: a sleep that has not ended, a wait without its event."""

    STORED = "stored"
    ERROR = "error"
    TIMEOUT = "timeout"
    OPEN = "open"


class StepView(View, frozen=True, kw_only=True):
    """One step of a job. ``name`` is as people read it: ``fetch[a.png]`` with a key, ``fetch#2``
    for a second call. ``run`` counts the claims that stored steps, and ``epoch`` is the number of
    the claim that stored this one; both are 0 for an open wait. ``ended_at`` is the planned end of
    a sleep, and None for an open wait. ``unused``: the run that ended the job did not use it;
    always false before the end. ``value`` is left out unless it was asked for."""

    name: str
    kind: StepKind
    state: StepState
    began_at: datetime
    ended_at: datetime | None
    duration_s: float | None
    run: int
    epoch: int
    size: int
    unused: bool = False
    value: Any | UnsetType = UNSET


class RunStart(View, frozen=True, kw_only=True):
    """When the first step of a claim began."""

    epoch: int
    at: datetime


def step_view(
    record: StepRecord, *, run: int, now: Instant, is_live: bool, unused: bool, value: Any
) -> StepView:
    """A stored step for display."""
    state = StepState.STORED
    if record.kind is StepKind.ERROR:
        state = StepState.ERROR
    elif record.kind is StepKind.TIMEOUT:
        state = StepState.TIMEOUT
    elif record.kind is StepKind.SLEEP and is_live and record.ended_at > now:
        state = StepState.OPEN
    return StepView(
        name=redact.prose(shown_step(record.name)),
        kind=record.kind,
        state=state,
        began_at=to_datetime(record.began_at),
        ended_at=to_datetime(record.ended_at),
        duration_s=max(0, record.ended_at - record.began_at) / SECOND,
        run=run,
        epoch=record.epoch,
        size=record.size,
        unused=unused,
        value=value,
    )


def open_wait(wait: WaitRecord) -> StepView:
    """A wait that has not ended."""
    return StepView(
        name=redact.prose(shown_step(wait.step)),
        kind=StepKind.EVENT,
        state=StepState.OPEN,
        began_at=to_datetime(wait.began_at),
        ended_at=None,
        duration_s=None,
        run=0,
        epoch=0,
        size=0,
    )


def run_starts(records: Sequence[StepRecord]) -> list[RunStart]:
    """The claims that stored these steps, which are in the order of time."""
    first: dict[int, Instant] = {}
    for record in records:
        first.setdefault(record.epoch, record.began_at)
    return [RunStart(epoch=epoch, at=to_datetime(at)) for epoch, at in sorted(first.items())]
