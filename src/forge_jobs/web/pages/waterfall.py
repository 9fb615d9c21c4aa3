"""The waterfall of a job's steps: bars to scale within the time span of all its steps.

Positions are percentages that templates write into attributes of SVG elements: the content
security policy allows no inline styles.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from forge_jobs.core.status import is_terminal
from forge_jobs.core.steps import StepKind
from forge_jobs.ops.step_views import StepState, StepView
from forge_jobs.ops.steps import StepsPage
from forge_jobs.ops.views import ErrorView, JobView

from .commands import forge_command

PAGE_STEPS: Final = 100
_MIN_WIDTH: Final = 0.4
_MAX_TICKS: Final = 24
_SHORTEST_S: Final = 0.001


class Tick(Struct, frozen=True, kw_only=True):
    """A vertical line: where a run began, or an attempt failed."""

    x: float
    is_error: bool


class Bar(Struct, frozen=True, kw_only=True):
    """One row. ``looks`` is its CSS class, ``is_hatched`` a sleep or a wait. ``after_s``: how long
    after the first step it began."""

    id: str
    step: StepView
    x: float
    width: float
    looks: str
    is_hatched: bool
    after_s: float
    took_s: float
    retry_command: str


class Waterfall(Struct, frozen=True, kw_only=True):
    """A page of bars, and the marks of the axis in seconds."""

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    runs: int
    marks: tuple[float, ...]
    total: int
    unused: int
    first: int
    previous: int | None
    next: int | None


def waterfall(page: StepsPage, job: JobView) -> Waterfall | None:
    """The waterfall of a page of steps; None for a job without steps."""
    if page.began_at is None or not page.total:
        return None
    start, end = page.began_at, _end(page, job)
    span_s = max((end - start).total_seconds(), _SHORTEST_S)
    return Waterfall(
        bars=tuple(_bar(job.id, step, start, end, span_s) for step in page.steps),
        ticks=_ticks([run.at for run in page.runs], job.errors, start, span_s),
        runs=len(page.runs),
        marks=tuple(span_s * part / 4 for part in range(5)),
        total=page.total,
        unused=page.unused,
        first=page.offset + 1,
        previous=max(0, page.offset - PAGE_STEPS) if page.offset else None,
        next=page.next,
    )


def _end(page: StepsPage, job: JobView) -> datetime:
    """The latest moment that the axis shows: at least now, while the job is not at its end."""
    ends = [page.until or page.at]
    if not is_terminal(job.status):
        ends.append(page.at)
    elif job.finished_at is not None:
        # A sleep that a cancel ended keeps its planned end.
        return min(max(*ends, job.finished_at), job.finished_at + timedelta(seconds=1))
    return max(ends)


def _bar(job_id: str, step: StepView, start: datetime, end: datetime, span_s: float) -> Bar:
    after_s = max(0.0, (step.began_at - start).total_seconds())
    ended_at = min(step.ended_at or end, end)
    took_s = max(0.0, (ended_at - step.began_at).total_seconds())
    width = max(_MIN_WIDTH, 100 * took_s / span_s)
    is_hatched = step.kind in (StepKind.SLEEP, StepKind.EVENT, StepKind.TIMEOUT)
    looks = step.state.value if step.state is not StepState.STORED else step.kind.value
    return Bar(
        id="step-" + hashlib.blake2b(step.name.encode(), digest_size=6).hexdigest(),
        step=step,
        x=round(min(100 * after_s / span_s, 100 - _MIN_WIDTH), 3),
        width=round(min(width, 100.0), 3),
        looks=looks,
        is_hatched=is_hatched,
        after_s=after_s,
        took_s=step.duration_s if step.duration_s is not None else took_s,
        retry_command=forge_command("jobs", "retry", job_id, "--from", step.name),
    )


def _ticks(
    runs: Sequence[datetime], errors: Sequence[ErrorView], start: datetime, span_s: float
) -> tuple[Tick, ...]:
    moments = [(at, False) for at in runs[1:]] + [(error.at, True) for error in errors]
    found: list[Tick] = []
    for at, is_error in moments[-_MAX_TICKS:]:
        x = 100 * (at - start).total_seconds() / span_s
        if 0 <= x <= 100:
            found.append(Tick(x=round(x, 3), is_error=is_error))
    return tuple(found)
