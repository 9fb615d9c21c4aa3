"""Bulk actions on jobs: cancel, retry, run now, delete.

A filter is scanned in descending order of keys, at most ``limit`` matching rows per call: each call
makes progress, whatever the rows are, and none sees jobs that were enqueued after the first.
"""

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from msgspec import structs

from forge_jobs.core.errors import BadOption
from forge_jobs.core.selection import Acted, Cursor, Selection
from forge_jobs.core.status import RETRYABLE, TERMINAL, Attempts, Event, JobStatus

from . import dedupe_keys, queries, transitions
from .io.transaction import Tx
from .rows import Details, Row
from .transitions import as_json


class Effect(Enum):
    """What an action did to one job; DELETED ones are deleted together afterwards."""

    CHANGED = "changed"
    REQUESTED = "requested"
    SKIPPED = "skipped"
    DELETED = "deleted"


Action: TypeAlias = Callable[[Tx, Row], Effect]


def act(tx: Tx, selection: Selection, action: Action, limit: int, after: Cursor | None) -> Acted:
    """Apply an action to the selected jobs, within the limit of one call."""
    if selection.ids and selection.filter is not None:
        raise BadOption("a selection takes ids or a filter, not both")
    missing, next_cursor = 0, None
    if selection.filter is None:
        found_keys = queries.keys_of(tx.execute, tuple(dict.fromkeys(selection.ids)), tx.tag)
        keys = [key for key in found_keys if key is not None]
        missing = len(found_keys) - len(keys)
    else:
        found = queries.newest(tx.execute, selection.filter, limit=limit, after=after, tag=tx.tag)
        keys, next_cursor = found.keys, queries.cursor(found, tx.tag)
    rows = transitions.load_text(tx, as_json(keys)) if keys else {}
    effects: dict[Effect, list[Row]] = {effect: [] for effect in Effect}
    for key in keys:
        row = rows[key]
        effect = action(tx, row)
        effects[effect].append(row)
        if row.dedupe_key is not None and effect is Effect.CHANGED:
            # Its stored state decides about the next job with the same dedupe key.
            transitions.store(tx, [row])
    transitions.store(tx, effects[Effect.CHANGED] + effects[Effect.REQUESTED])
    transitions.delete(tx, effects[Effect.DELETED])
    return Acted(
        changed=len(effects[Effect.CHANGED]) + len(effects[Effect.DELETED]),
        requested=len(effects[Effect.REQUESTED]),
        skipped=len(effects[Effect.SKIPPED]),
        missing=missing,
        next=next_cursor,
    )


def cancel(reason: str, tx: Tx, row: Row) -> Effect:
    if row.status in TERMINAL:
        return Effect.SKIPPED
    if row.status is JobStatus.RUNNING:
        transitions.request_cancel(tx, row, Event.CANCEL, reason)
        return Effect.REQUESTED
    transitions.cancel(tx, row, Event.CANCEL, reason)
    return Effect.CHANGED


def retry(tx: Tx, row: Row) -> Effect:
    if row.status not in RETRYABLE or dedupe_keys.is_taken(tx, row):
        return Effect.SKIPPED
    details, options = row.details(), row.options()
    row.run_at = tx.now
    kept = Details(
        errors=details.errors, progress=details.progress, progress_note=details.progress_note
    )
    row.set_details(kept)
    row.result, row.result_changed = None, True
    if options.expires_at is not None and options.expires_at <= tx.now:
        # An old expiry would cancel the job again before it could run.
        text = as_json(structs.replace(options, expires_at=None))
        row.options_text = None if text == "{}" else text
    transitions.transition(tx, row, Event.RETRY, JobStatus.PENDING, Attempts.RESET)
    dedupe_keys.take(tx, row)
    return Effect.CHANGED


def run_now(tx: Tx, row: Row) -> Effect:
    if row.status not in (JobStatus.SCHEDULED, JobStatus.FAILED):
        return Effect.SKIPPED
    row.run_at = tx.now
    transitions.transition(tx, row, Event.RUN_NOW, JobStatus.PENDING)
    return Effect.CHANGED


def delete(tx: Tx, row: Row) -> Effect:
    if row.status is JobStatus.RUNNING:
        transitions.request_cancel(tx, row, Event.DELETE, transitions.DELETED)
        return Effect.REQUESTED
    return Effect.DELETED
