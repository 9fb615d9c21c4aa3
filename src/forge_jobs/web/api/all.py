"""Every route of the API; fixed paths come before paths with parameters."""

from typing import Final

from . import (
    alerts,
    audit,
    bulk,
    cron,
    errors,
    job_actions,
    jobs,
    limits,
    queues,
    series,
    steps,
    story,
    system,
    tasks,
    views,
    workers,
)
from .route import Route, by_method_and_path

_FILES: Final = (
    system, queues, workers, tasks, series, jobs, job_actions, steps, story, bulk, errors, cron,
    limits, alerts, audit, views,
)  # fmt: skip

ROUTES: Final[tuple[Route, ...]] = tuple(
    sorted(
        by_method_and_path([route for file in _FILES for route in file.routes.all]).values(),
        key=lambda route: "{" in route.path,
    )
)
