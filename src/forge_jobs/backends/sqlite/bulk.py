"""What people do to many jobs at once: cancel, retry, run now, delete.

A filter is walked downwards by key, at most ``limit`` matching rows per call: it always gets on,
whatever the rows are like, and never meets jobs that came after it began.
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
from .rows import Row, State
from .transitions import as_json


class Effect(Enum):
    """What an action did to one job; REMOVED ones are deleted together afterwards."""

    CHANGED = "changed"
    REQUESTED = "requested"
    SKIPPED = "skipped"
    REMOVED = "removed"


Deed: TypeAlias = Callable[[Tx, Row], Effect]


def act(tx: Tx, selection: Selection, deed: Deed, limit: int, after: Cursor | None) -> Acted:
    """Do something to every selected job, within the limit of one call."""
    if selection.ids and selection.filter is not None:
        raise BadOption("a selection takes ids or a filter, not both")
    missing, following = 0, None
    if selection.filter is None:
        named = queries.keys_of(tx.execute, tuple(dict.fromkeys(selection.ids)), tx.tag)
        chosen = [key for key in named if key is not None]
        missing = len(named) - len(chosen)
    else:
        found = queries.newest(tx.execute, selection.filter, limit=limit, after=after, tag=tx.tag)
        chosen, following = found.keys, queries.cursor(found, tx.tag)
    rows = transitions.load_text(tx, as_json(chosen)) if chosen else {}
    effects: dict[Effect, list[Row]] = {effect: [] for effect in Effect}
    for key in chosen:
        row = rows[key]
        effect = deed(tx, row)
        effects[effect].append(row)
        if row.dedupe_key is not None and effect is Effect.CHANGED:
            # Its state decides about the next job with the same key.
            transitions.store(tx, [row])
    transitions.store(tx, effects[Effect.CHANGED] + effects[Effect.REQUESTED])
    transitions.remove(tx, effects[Effect.REMOVED])
    return Acted(
        changed=len(effects[Effect.CHANGED]) + len(effects[Effect.REMOVED]),
        requested=len(effects[Effect.REQUESTED]),
        skipped=len(effects[Effect.SKIPPED]),
        missing=missing,
        next=following,
    )


def cancel(reason: str, tx: Tx, row: Row) -> Effect:
    if row.status in TERMINAL:
        return Effect.SKIPPED
    if row.status is JobStatus.RUNNING:
        transitions.request_stop(tx, row, Event.CANCEL, reason)
        return Effect.REQUESTED
    transitions.cancel(tx, row, Event.CANCEL, reason)
    return Effect.CHANGED


def retry(tx: Tx, row: Row) -> Effect:
    if row.status not in RETRYABLE or dedupe_keys.blocked(tx, row):
        return Effect.SKIPPED
    state, options = row.state(), row.options()
    row.run_at = tx.now
    kept = State(errors=state.errors, progress=state.progress, progress_note=state.progress_note)
    row.keep(kept)
    row.result, row.result_changed = None, True
    if options.expires_at is not None and options.expires_at <= tx.now:
        # Kept, it would cancel the job again before anybody could run it.
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
        transitions.request_stop(tx, row, Event.DELETE, transitions.DELETED)
        return Effect.REQUESTED
    return Effect.REMOVED
