"""Promotes jobs that have become due: plain ones in one statement, others row by row."""

from collections.abc import Sequence

import msgspec

from forge_jobs.backends.shared.rowwise import transitions, waits
from forge_jobs.core.status import Event, JobStatus

from .io.transaction import ROWS_SQL as SQL
from .io.transaction import Tx
from .json_text import as_json, read_keys

_groups_of = msgspec.json.Decoder(list[tuple[str, str, JobStatus, int]]).decode


def promote(tx: Tx, queue: str, limit: int) -> int:
    """Make due jobs of a queue pending and cancel expired ones; returns how many."""
    tx.ingest()
    due, expired, bound, suspended = tx.row(SQL["due"], (queue, tx.now, limit))
    due_keys = read_keys(due)
    if not due_keys:
        return 0
    handled = set[int]()
    if expired != "[]":
        transitions.expire(tx, list(tx.load_text(expired).values()))
        handled.update(read_keys(expired))
    if suspended != "[]":
        rows = list(tx.load_text(suspended).values())
        waits.wake(tx, rows)
        tx.store(rows)
        handled.update(row.key for row in rows)
    if bound != "[]":
        _promote_bound(tx, [key for key in read_keys(bound) if key not in handled])
        handled.update(read_keys(bound))
    if handled:
        due = as_json([key for key in due_keys if key not in handled])
    (groups,) = tx.row(SQL["count_by_state"], (due,))
    for queue_name, kind, status, jobs in _groups_of(groups):
        tx.counters.transitioned(queue_name, kind, status, JobStatus.PENDING, jobs)
        tx.notify_queues.add(queue_name)
    tx.execute(SQL["make_pending"], (due,))
    return len(due_keys)


def _promote_bound(tx: Tx, due_keys: Sequence[int]) -> None:
    """Promote jobs with a lane or a limit key: they are held until their bucket admits them."""
    rows = list(tx.load(due_keys).values())
    for row in rows:
        transitions.transition(tx, row, Event.PROMOTE, JobStatus.PENDING)
    tx.store(rows)
