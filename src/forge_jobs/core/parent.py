"""The parent link of a job: what enqueued it, stored among its rare options.

A job has one if a handler, the end of another job, a schedule or a copy made it. Jobs that are
enqueued elsewhere have none, and cost nothing for it.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct, structs

from .job import NewJob

PARENT: Final = "parent"
VIA: Final = "via"
_SCHEDULE: Final = "schedule:"


class Via(StrEnum):
    """How a job came from its parent."""

    HANDLER = "handler"
    ON_DONE = "on_done"
    ON_DEAD = "on_dead"
    COPY = "copy"
    SCHEDULE = "schedule"


class Parent(Struct, frozen=True):
    """What made a job: another job by its id, or a schedule by its name."""

    via: Via
    job_id: str | None = None
    schedule: str | None = None


def with_parent(job: NewJob, job_id: str, via: Via) -> NewJob:
    """The request with a link to a parent job; a link of its own stays."""
    return with_parents((job,), job_id, via)[0]


def with_parents(jobs: Sequence[NewJob], job_id: str, via: Via) -> list[NewJob]:
    """The same for the jobs of one call."""
    # They share one mapping, which stores compare by identity.
    link = {PARENT: job_id, VIA: via.value}
    return [
        structs.replace(job, options=link) if job.options is None else _merged(job, link)
        for job in jobs
    ]


def with_schedule(job: NewJob, schedule: str) -> NewJob:
    """The request with a link to the schedule that makes it."""
    return with_parent(job, schedule_parent(schedule), Via.SCHEDULE)


def schedule_parent(name: str) -> str:
    """The parent of the jobs of a schedule, as a filter takes it."""
    return _SCHEDULE + name


def parent_of(options: Mapping[str, Any] | None) -> Parent | None:
    """The link among the rare options of a job; None for most jobs."""
    parent = None if options is None else options.get(PARENT)
    if options is None or not isinstance(parent, str):
        return None
    via = options.get(VIA, Via.HANDLER)
    if via not in tuple(Via):
        return None
    if parent.startswith(_SCHEDULE):
        return Parent(Via(via), schedule=parent.removeprefix(_SCHEDULE))
    return Parent(Via(via), job_id=parent)


def without_parent(options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Rare options without the link; None if nothing else is in them."""
    rest = {name: value for name, value in (options or {}).items() if name not in (PARENT, VIA)}
    return rest or None


def is_link(options: Mapping[str, Any]) -> bool:
    """Whether rare options hold a link and nothing else: such jobs take short paths."""
    return len(options) == 2 and PARENT in options and VIA in options


def _merged(job: NewJob, link: Mapping[str, Any]) -> NewJob:
    options = job.options or {}
    return job if PARENT in options else structs.replace(job, options={**options, **link})
