"""Registers every page, in the order of the navigation, and every form."""

from typing import Final

from . import (
    alerts,
    audit,
    capacity,
    cron,
    health,
    job,
    jobs,
    limits,
    overview,
    queues,
    suspended,
    timeline,
    workers,
)
from .page import FormSpec, PageSpec

PAGES: Final[tuple[PageSpec, ...]] = (
    overview.PAGE,
    *jobs.PAGES,
    suspended.PAGE,
    cron.PAGE,
    cron.SCHEDULE_PAGE,
    queues.PAGE,
    capacity.PAGE,
    workers.PAGE,
    limits.PAGE,
    alerts.PAGE,
    health.PAGE,
    audit.PAGE,
    job.PAGE,
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
)
