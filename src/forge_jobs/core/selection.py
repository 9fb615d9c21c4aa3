"""Filters for lists of jobs, selections for bulk actions, and pages with cursors."""

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from .errors import BadOption
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


class Order(StrEnum):
    """The order of a list: by time of enqueue, due time, end or start; with ``-`` the latest first.

    Jobs with one time are in the order of their keys. A store has an index by time for some states
    only: ``Order.statuses``.
    """

    NEWEST = "-enqueued"
    DUE_FIRST = "due"
    DUE_LAST = "-due"
    ENDED_FIRST = "ended"
    ENDED_LAST = "-ended"
    STARTED_FIRST = "started"
    STARTED_LAST = "-started"

    @property
    def time(self) -> str:
        """What it is by: enqueued, due, ended or started."""
        return self.value.removeprefix("-")

    @property
    def descending(self) -> bool:
        """Whether the latest job comes first."""
        return self.value.startswith("-")

    @property
    def statuses(self) -> tuple[JobStatus, ...]:
        """The states that a filter may want in this order; none for every state."""
        return _ORDERED_STATES.get(self.time, ())


_ORDERED_STATES = {
    "due": (JobStatus.SCHEDULED, JobStatus.FAILED),
    "ended": (JobStatus.DEAD, JobStatus.CANCELLED),
    "started": (JobStatus.RUNNING,),
}


def parse_order(text: str) -> Order:
    """The order of that name, or BadOption."""
    try:
        return Order(text)
    except ValueError:
        raise BadOption(f"sort={text} is not one of {', '.join(Order)}") from None


def check_order(wanted: Filter, order: Order) -> None:
    """BadOption for an order that is not for the states of a filter."""
    if not order.statuses or (wanted.statuses and set(wanted.statuses) <= set(order.statuses)):
        return
    raise BadOption(
        f"sort={order} is for lists of {' and '.join(order.statuses)} jobs: "
        f"set the state, or use sort={Order.NEWEST}"
    )


def usual_order(statuses: tuple[JobStatus, ...]) -> Order:
    """The order that a list of these states has without a choice: by the time it is about."""
    for order in (Order.ENDED_LAST, Order.DUE_FIRST, Order.STARTED_LAST):
        if statuses and set(statuses) <= set(order.statuses):
            return order
    return Order.NEWEST


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
