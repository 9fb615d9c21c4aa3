"""Which jobs a person means: filters for lists, selections for bulk actions, pages with cursors."""

from typing import TypeAlias

from msgspec import Struct

from .instant import Instant
from .job import JobRecord
from .status import JobStatus

Cursor: TypeAlias = str


class Filter(Struct, frozen=True, kw_only=True):
    """Conditions that must all hold; an empty one means "any".

    ``error`` is a piece of the last error as people see it, letter for letter: secrets are hidden
    (``kit.redact.prose``), so none can be guessed piece by piece. The same holds for ``payload``, a
    piece of the payload, letter case aside. ``enqueued_until`` is excluded.
    """

    queue: str | None = None
    kind: str | None = None
    statuses: tuple[JobStatus, ...] = ()
    tag: str | None = None
    dedupe_key: str | None = None
    error: str | None = None
    payload: str | None = None
    enqueued_from: Instant | None = None
    enqueued_until: Instant | None = None


class Selection(Struct, frozen=True, kw_only=True):
    """Jobs by id, or by filter. Exactly one of the two is given."""

    ids: tuple[str, ...] = ()
    filter: Filter | None = None


class Page(Struct, frozen=True):
    """One page of a list, newest first; ``next`` leads to the following page.

    ``stopped``: it is short, perhaps empty, because one call looks at a bounded number of jobs;
    ``next`` goes on behind them. ``rows_read``: at how many jobs it looked.
    """

    jobs: tuple[JobRecord, ...]
    next: Cursor | None = None
    stopped: bool = False
    rows_read: int = 0


class Acted(Struct, frozen=True, kw_only=True):
    """What a bulk action did within its limit.

    ``changed`` moved, ``requested`` are running jobs that were asked to stop, ``skipped`` were in a
    state the action does not apply to or had their key taken, ``missing`` ids do not exist.
    ``next`` continues a filter that has more; ids are always finished in one call.
    """

    changed: int = 0
    requested: int = 0
    skipped: int = 0
    missing: int = 0
    next: Cursor | None = None
