"""Dedupe keys in transitions: taken, freed at the start, or retained after the end."""

from forge_jobs.core.instant import after
from forge_jobs.core.job import UniqueWhile
from forge_jobs.core.status import TERMINAL

from .ports import JobTransaction, R


def started(tx: JobTransaction[R], row: R) -> None:
    """Free the key of a job that is unique only while it waits."""
    if row.dedupe_key is not None and row.options().unique_while is UniqueWhile.WAITING:
        tx.free_key(row)


def ended(tx: JobTransaction[R], row: R) -> None:
    """Free the key now, or after ``dedupe_for_s``."""
    if row.dedupe_key is None:
        return
    retain_s = row.options().dedupe_for_s
    if retain_s:
        tx.retain_key(row, after(tx.now, retain_s))
    else:
        tx.free_key(row)


def is_taken(tx: JobTransaction[R], row: R) -> bool:
    """Whether another live job holds this job's key."""
    if row.dedupe_key is None:
        return False
    holder = tx.key_holder(row.kind, row.dedupe_key)
    return holder is not None and holder.key != row.key and holder.status not in TERMINAL
