"""Dedupe keys of rows that move: kept, freed at the start, or remembered after the end."""

from typing import Final

from forge_jobs.core.instant import after
from forge_jobs.core.job import UniqueWhile
from forge_jobs.core.status import TERMINAL, JobStatus

from . import enqueue
from .io.transaction import Tx
from .rows import Row

_HOLDER: Final = enqueue.SQL["holder"]
_TAKE: Final = enqueue.SQL["take_key"]
_FREE: Final = enqueue.SQL["free_key"]
_END: Final = enqueue.SQL["end_key"]
_LAPSED: Final = enqueue.SQL["lapsed_keys"]


def take(tx: Tx, row: Row) -> None:
    """The key belongs to this job for as long as it lives."""
    if row.dedupe_key is not None:
        tx.execute(_TAKE, (row.kind, row.dedupe_key, row.key))


def release(tx: Tx, row: Row) -> None:
    """The key is free, if this job held it."""
    if row.dedupe_key is not None:
        tx.execute(_FREE, (row.kind, row.dedupe_key, row.key))


def started(tx: Tx, row: Row) -> None:
    """A job that is unique only while it waits gives its key up at its start."""
    if row.dedupe_key is not None and row.options().unique_while is UniqueWhile.WAITING:
        release(tx, row)


def ended(tx: Tx, row: Row) -> None:
    """The key is free from now on, or after ``dedupe_for_s``."""
    if row.dedupe_key is None:
        return
    kept_s = row.options().dedupe_for_s
    if kept_s:
        tx.execute(_END, (row.kind, row.dedupe_key, row.key, after(tx.now, kept_s)))
    else:
        release(tx, row)


def blocked(tx: Tx, row: Row) -> bool:
    """Whether another live job holds this job's key."""
    if row.dedupe_key is None:
        return False
    found = tx.row(_HOLDER, (row.kind, row.dedupe_key, tx.now))
    return found is not None and found[0] != row.key and JobStatus(found[1]) not in TERMINAL


def forget_lapsed(tx: Tx) -> None:
    """Drop keys whose time after the end is over."""
    tx.execute(_LAPSED, (tx.now,))
