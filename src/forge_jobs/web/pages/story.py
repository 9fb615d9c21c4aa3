"""The picture of a job's story: its spans and its steps as bars on one scale."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from forge_jobs.core.job_story import SpanKind
from forge_jobs.ops.step_views import StepState
from forge_jobs.ops.steps import StepsPage
from forge_jobs.ops.story import SpanView, StoryView
from forge_jobs.ops.views import JobView

_MIN_WIDTH: Final = 0.4
_SHORTEST_S: Final = 0.001
_FAILED_STEPS: Final = (StepState.ERROR, StepState.TIMEOUT)
_NAMES: Final = {
    SpanKind.SCHEDULED: "Scheduled",
    SpanKind.WAITING: "Waited",
    SpanKind.HELD: "Held",
    SpanKind.BACK_OFF: "Back-off",
    SpanKind.SUSPENDED: "Steps, sleeps",
}


class StoryBar(Struct, frozen=True, kw_only=True):
    """One span. ``looks`` is its CSS class, ``is_hatched``: nothing ran.
    ``traceback`` is the id of the element with its traceback; empty without one."""

    id: str
    name: str
    span: SpanView
    x: float
    width: float
    looks: str
    is_hatched: bool
    after_s: float
    traceback: str


class StepMark(Struct, frozen=True, kw_only=True):
    """A step on the scale of the story."""

    name: str
    x: float
    width: float
    looks: str


class StoryPicture(Struct, frozen=True, kw_only=True):
    """The bars in order, the steps in one row, and the marks of the axis in seconds."""

    bars: tuple[StoryBar, ...]
    steps: tuple[StepMark, ...]
    marks: tuple[float, ...]
    total_s: float


def story_picture(story: StoryView, page: StepsPage, job: JobView) -> StoryPicture:
    """The picture of a story and the first steps of the job."""
    tracebacks = _traceback_ids(job)
    start = story.spans[0].began_at if story.spans else story.at
    ends = [span.ended_at or story.at for span in story.spans]
    end = max([*ends, start])
    span_s = max((end - start).total_seconds(), _SHORTEST_S)
    return StoryPicture(
        bars=tuple(
            _bar(index, span, start, span_s, tracebacks)
            for index, span in enumerate(story.spans, 1)
        ),
        steps=tuple(
            _mark(step.name, step.began_at, min(step.ended_at or end, end), start, span_s, looks)
            for step in page.steps
            for looks in ("error" if step.state in _FAILED_STEPS else "step",)
            if start <= step.began_at <= end
        ),
        marks=tuple(span_s * part / 4 for part in range(5)),
        total_s=span_s,
    )


def _traceback_ids(job: JobView) -> dict[datetime, str]:
    """The ids of the elements of the page that hold tracebacks, by the end of the attempt."""
    last = len(job.errors)
    return {
        error.at: f"traceback-{job.id}" + ("" if number == last else f"-{number}")
        for number, error in enumerate(job.errors, 1)
        if error.traceback
    }


def _bar(
    index: int,
    span: SpanView,
    start: datetime,
    span_s: float,
    tracebacks: Mapping[datetime, str],
) -> StoryBar:
    after_s = max(0.0, (span.began_at - start).total_seconds())
    runs = span.kind is SpanKind.ATTEMPT
    failed = runs and span.error is not None
    return StoryBar(
        id=f"span-{index}",
        name=f"Attempt {span.attempt}" if runs else _NAMES[span.kind],
        span=span,
        x=_x(after_s, span_s),
        width=_width(span.duration_s, span_s),
        looks="error" if failed else "step" if runs else "sleep",
        is_hatched=not runs,
        after_s=after_s,
        traceback=tracebacks.get(span.ended_at, "") if failed and span.ended_at else "",
    )


def _mark(
    name: str, began_at: datetime, ended_at: datetime, start: datetime, span_s: float, looks: str
) -> StepMark:
    after_s = max(0.0, (began_at - start).total_seconds())
    took_s = max(0.0, (ended_at - began_at).total_seconds())
    return StepMark(name=name, x=_x(after_s, span_s), width=_width(took_s, span_s), looks=looks)


def _x(after_s: float, span_s: float) -> float:
    return round(min(100 * after_s / span_s, 100 - _MIN_WIDTH), 3)


def _width(took_s: float, span_s: float) -> float:
    return round(min(max(_MIN_WIDTH, 100 * took_s / span_s), 100.0), 3)
