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
    substring of the displayed payload, redacted as well, case-insensitive. ``arguments`` are pairs
    of a name and a text: the displayed payload has that field (``customer.id`` leads into objects,
    an array matches by any item), and it contains the text, case-insensitive; a number or other
    plain value must be equal to it. ``finished_from`` and ``finished_until`` are about terminal
    jobs; ``enqueued_until`` and ``finished_until`` are excluded. ``owners`` are processes that run
    the job now. ``group`` is the error group of the last failed attempt,
    ``parent`` the id of the job that made it, or ``schedule:NAME``.
    """

    queue: str | None = None
    kind: str | None = None
    statuses: tuple[JobStatus, ...] = ()
    tag: str | None = None
    dedupe_key: str | None = None
    error: str | None = None
    payload: str | None = None
    group: str | None = None
    enqueued_from: Instant | None = None
    enqueued_until: Instant | None = None
    arguments: tuple[tuple[str, str], ...] = ()
    finished_from: Instant | None = None
    finished_until: Instant | None = None
    owners: tuple[int, ...] | None = None
    parent: str | None = None

    @property
    def reads_payloads(self) -> bool:
        """Whether a job's payload decides: no index holds it."""
        return self.payload is not None or bool(self.arguments)


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
