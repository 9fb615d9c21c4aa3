"""The pull-style queue: scripts that fetch their work themselves, with no worker process.

``JobQueue`` is the object; the nine functions of the original are the same in another dress.
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
