"""Moves jobs to the queue of their kind that were stored before anybody named it."""

from collections.abc import Iterable, Mapping

from forge_jobs.core.status import Event, JobStatus

from .ports import JobTransaction, R
from .transitions import transition


def route(tx: JobTransaction[R], rows: Iterable[R], queues: Mapping[str, str]) -> int:
    """``JobStore.route`` for these rows; those of jobs that may be retried move too."""
    changed = [row for row in rows if row.status is not JobStatus.RUNNING]
    for row in changed:
        queue = queues[row.kind]
        if queue != row.queue and row.status is not JobStatus.DONE:
            if row.status in (JobStatus.PENDING, JobStatus.HELD):
                # Gives up what it holds in the old queue.
                transition(tx, row, Event.RESCHEDULE, JobStatus.SCHEDULED)
            tx.counters.deleted(row.queue, row.kind, row.status)
            tx.counters.inserted(queue, row.kind, row.status)
            tx.notify_queues.add(queue)
            row.route(queue)
        else:
            row.route(row.queue)
    tx.store(changed)
    return len(changed)
