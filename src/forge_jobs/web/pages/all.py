"""Registers every page, in the order of the navigation, and every form."""

from typing import Final

from . import (
    alerts,
    api_reference,
    audit,
    capacity,
    cron,
    errors,
    health,
    job,
    jobs,
    limits,
    overview,
    queues,
    suspended,
    tags,
    tasks,
    timeline,
    workers,
)
from .page import FormSpec, PageSpec

PAGES: Final[tuple[PageSpec, ...]] = (
    overview.PAGE,
    *jobs.PAGES,
    errors.PAGE,
    errors.GROUP_PAGE,
    suspended.PAGE,
    cron.PAGE,
    cron.SCHEDULE_PAGE,
    tasks.PAGE,
    tasks.TASK_PAGE,
    tags.PAGE,
    tags.TAG_PAGE,
    queues.PAGE,
    capacity.PAGE,
    workers.PAGE,
    limits.PAGE,
    alerts.PAGE,
    health.PAGE,
    audit.PAGE,
    job.PAGE,
    api_reference.PAGE,
    api_reference.GROUP_PAGE,
    job.STEP_PAGE,
    timeline.PAGE,
)
FORMS: Final[tuple[FormSpec, ...]] = (
    *jobs.FORMS,
    *job.FORMS,
    *cron.FORMS,
    *queues.FORMS,
    *workers.FORMS,
    *limits.FORMS,
    *alerts.FORMS,
    *errors.FORMS,
)
