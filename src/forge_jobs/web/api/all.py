"""Every route of the API, with fixed paths before those that hold a name."""

from typing import Final

from . import audit, bulk, cron, job_actions, jobs, limits, queues, series, system, workers
from .route import Route, as_table

_FILES: Final = (system, queues, workers, series, jobs, job_actions, bulk, cron, limits, audit)

ROUTES: Final[tuple[Route, ...]] = tuple(
    sorted(
        as_table([route for file in _FILES for route in file.routes.all]).values(),
        key=lambda route: "{" in route.path,
    )
)
