"""The pull queue: scripts dequeue their jobs themselves, without a worker process.

``JobQueue`` is the interface; the nine ``job_…`` functions are the same as plain functions.
"""

from forge_jobs.core.errors import LeaseLost

from .functions import (
    job_cleanup,
    job_complete,
    job_dequeue,
    job_enqueue,
    job_fail,
    job_queue_create,
    job_status_summary,
    job_worker,
    job_worker_pool,
)
from .job import Job, JobStatus
from .queue import JobQueue

__all__ = [
    "Job",
    "JobQueue",
    "JobStatus",
    "LeaseLost",
    "job_cleanup",
    "job_complete",
    "job_dequeue",
    "job_enqueue",
    "job_fail",
    "job_queue_create",
    "job_status_summary",
    "job_worker",
    "job_worker_pool",
]
