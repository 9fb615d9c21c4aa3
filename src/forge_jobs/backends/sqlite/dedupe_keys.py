"""Dedupe keys in transitions: taken, freed at the start, or retained after the end."""

from typing import Final

from forge_jobs.core.instant import after
from forge_jobs.core.job import UniqueWhile
from forge_jobs.core.status import TERMINAL, JobStatus

from . import enqueue
from .io.transaction import Tx
from .rows import Row

_KEY_HOLDER: Final = enqueue.SQL["key_holder"]
_TAKE: Final = enqueue.SQL["take_key"]
_FREE: Final = enqueue.SQL["free_key"]
_RETAIN: Final = enqueue.SQL["retain_key"]
_DELETE_EXPIRED: Final = enqueue.SQL["delete_expired_keys"]


def take(tx: Tx, row: Row) -> None:
    """Assign the key to this job while it is live."""
    if row.dedupe_key is not None:
        tx.execute(_TAKE, (row.kind, row.dedupe_key, row.key))


def release(tx: Tx, row: Row) -> None:
    """Free the key if this job holds it."""
    if row.dedupe_key is not None:
        tx.execute(_FREE, (row.kind, row.dedupe_key, row.key))


def started(tx: Tx, row: Row) -> None:
    """Free the key of a job that is unique only while it waits."""
    if row.dedupe_key is not None and row.options().unique_while is UniqueWhile.WAITING:
        release(tx, row)


def ended(tx: Tx, row: Row) -> None:
    """Free the key now, or after ``dedupe_for_s``."""
    if row.dedupe_key is None:
        return
    retain_s = row.options().dedupe_for_s
    if retain_s:
        tx.execute(_RETAIN, (row.kind, row.dedupe_key, row.key, after(tx.now, retain_s)))
    else:
        release(tx, row)


def is_taken(tx: Tx, row: Row) -> bool:
    """Whether another live job holds this job's key."""
    if row.dedupe_key is None:
        return False
    found = tx.row(_KEY_HOLDER, (row.kind, row.dedupe_key, tx.now))
    return found is not None and found[0] != row.key and JobStatus(found[1]) not in TERMINAL


def delete_expired(tx: Tx) -> None:
    """Delete keys whose ``dedupe_for_s`` is over."""
    tx.execute(_DELETE_EXPIRED, (tx.now,))
