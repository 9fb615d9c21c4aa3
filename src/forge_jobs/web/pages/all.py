"""Every page in the order of the navigation, and every form."""

from typing import Final

from . import job, jobs, overview, queues, workers
from .page import Form, Page

PAGES: Final[tuple[Page, ...]] = (
    overview.PAGE,
    *jobs.PAGES,
    queues.PAGE,
    workers.PAGE,
    job.PAGE,
)
FORMS: Final[tuple[Form, ...]] = (*jobs.FORMS, *queues.FORMS, *workers.FORMS)
