"""Filters for lists of jobs, selections for bulk actions, and pages with cursors."""

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from .instant import Instant
from .job import JobRecord
from .status import JobStatus

Cursor: TypeAlias = str


class Filter(Struct, frozen=True, kw_only=True):
    """Conditions that must all hold. A condition that is not set matches any job.

    ``error`` is a substring of the last error as it is displayed, case-sensitive. Secrets are
    redacted in it (``kit.redact.prose``), so none can be guessed piece by piece. ``payload`` is a
    substring of the displayed payload, redacted as well, case-insensitive. ``enqueued_until`` is
    excluded. ``parent`` is the id of the job that made it, or ``schedule:NAME``.
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
    parent: str | None = None


class Selection(Struct, frozen=True, kw_only=True):
    """Jobs by id, or by filter. Exactly one of the two is given."""

    ids: tuple[str, ...] = ()
    filter: Filter | None = None


class BulkAction(StrEnum):
    """What an operator does to a selection of jobs; ``JobStore.act`` says what each one means."""

    CANCEL = "cancel"
    RETRY = "retry"
    RUN_NOW = "run_now"
    RESCHEDULE = "reschedule"
    DELETE = "delete"


class Page(Struct, frozen=True):
    """One page of a list, newest first; ``next`` is the cursor of the following page.

    ``stopped``: the page is short, perhaps empty, because one call reads a bounded number of jobs;
    ``next`` continues after them. ``rows_read``: how many jobs were read.
    """

    jobs: tuple[JobRecord, ...]
    next: Cursor | None = None
    stopped: bool = False
    rows_read: int = 0


class Acted(Struct, frozen=True, kw_only=True):
    """How many jobs a bulk action affected, within its limit.

    ``changed``: the action was applied. ``requested``: running jobs that got a cancel request.
    ``skipped``: the action does not apply to their state, or another job holds their dedupe key;
    ``key_taken`` is how many of them it is for the key.
    ``missing``: ids that do not exist. ``next`` continues a filter that matches more jobs; ids are
    always processed in one call.
    """

    changed: int = 0
    requested: int = 0
    skipped: int = 0
    key_taken: int = 0
    missing: int = 0
    next: Cursor | None = None
