"""Promotes jobs that have become due, and cancels those whose expiry has passed."""

from collections.abc import Iterable

from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.job_upkeep import Promoted

from . import limit_buckets, transitions, waits
from .transaction import Transaction


def promote(tx: Transaction, *, limit: int) -> Promoted:
    """Promote due jobs of all queues to pending and cancel expired ones."""
    index = tx.tables.index
    expired = 0
    while (first := index.first_expiring()) is not None and first[0] <= tx.now:
        if expired == limit:
            return Promoted(0, expired, tx.now, True)
        transitions.expire(tx, list(tx.load([first[1]]).values()))
        expired += 1
    promoted = promote_queues(tx, index.waiting_queues(), limit - expired)
    times = [index.first_expiring(), *map(index.first_due, index.waiting_queues())]
    next_due = min((time[0] for time in times if time is not None), default=None)
    return Promoted(promoted, expired, next_due, next_due is not None and next_due <= tx.now)


def promote_queues(tx: Transaction, queues: Iterable[str], limit: int) -> int:
    """Promote due jobs of some queues; how many. Jobs that become due together leave their limit
    bucket in its order, not in that of their times: all of them are held in it first."""
    promoted = 0
    for queue in queues:
        promoted += _promote_due(tx, queue, limit - promoted)
    limit_buckets.admit_touched(tx)
    return promoted


def _promote_due(tx: Transaction, queue: str, limit: int) -> int:
    index, promoted = tx.tables.index, 0
    while promoted < limit:
        first = index.first_due(queue)
        if first is None or first[0] > tx.now:
            break
        row = tx.load([first[1]])[first[1]]
        if row.expired(tx.now):
            transitions.expire(tx, [row])
        elif row.status is JobStatus.SUSPENDED:
            waits.wake(tx, [row])
            tx.store([row])
        else:
            transitions.transition(tx, row, Event.PROMOTE, JobStatus.PENDING)
            tx.store([row])
        promoted += 1
    return promoted
