"""Storing new jobs, also the ones that a move carries and those in a user's own transaction."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec.json import encode

from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core import ids
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.status import JobStatus

from .io.operation import Joint
from .io.transaction import Tx
from .io.writer import Writer
from .rows import bound_row, is_due, is_due_now, is_usual, needs_body, new_row

if TYPE_CHECKING:
    from .limit_buckets import Newcomers

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "enqueue.sql")

_HOLDER: Final = SQL["holder"]
_TAKE_KEY: Final = SQL["take_key"]
_BODY: Final = SQL["insert_body"]
_INSERT_ONE: Final = SQL["insert_jobs"]
_INSERT_LONE: Final = SQL["insert_lone"]
_INSERT_ALIKE: Final = SQL["insert_alike"]
_INSERT_BOUND: Final = SQL["insert_bound"]
_INSERT_BOUND_ALIKE: Final = SQL["insert_bound_alike"]
# Powers of two: a batch of any size is stored by a handful of statements, all of them cached.
_SIZES: Final = (64, 32, 16, 8, 4, 2, 1)
_COLUMNS: Final = 18
_ALIKE_FROM: Final = 4
# From here on it is cheaper to keep the books at once than to leave it to the next fold.
_COUNTED_FROM: Final = 8
# Jobs that were stored one by one are put in line and into the books by the next worker that comes
# along, or by every so manieth of them.
_FOLDED_EVERY: Final = 2_048


def _repeated(times: int) -> str:
    head, _, values = _INSERT_ONE.rpartition("VALUES")
    return f"{head}VALUES{', '.join([values] * times)}"


_INSERT: Final = {size: _repeated(size) for size in _SIZES}


def insert(tx: Tx, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Store jobs; the answers line up with the requests."""
    if len(jobs) >= _COUNTED_FROM:
        tx.roll_up()
    return insert_uncounted(tx, jobs)


class Enqueue(Joint):
    """A call to store jobs, as an operation: calls that wait together are stored together."""

    __slots__ = ("jobs",)

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs

    def __call__(self, tx: Tx) -> list[Enqueued]:
        return insert(tx, self.jobs)

    def together(self, tx: Tx, calls: "Sequence[Enqueue]") -> list[list[Enqueued]]:
        answers = insert(tx, [job for call in calls for job in call.jobs])
        split: list[list[Enqueued]] = []
        start = 0
        for call in calls:
            split.append(answers[start : start + len(call.jobs)])
            start += len(call.jobs)
        return split


def insert_uncounted(tx: Tx, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """The same without touching the books, unless the transaction has begun to keep them."""
    now, tag = tx.now, tx.tag
    first = key = tx.top() + 1
    answers: list[Enqueued] = []
    runs: list[_Run] = []
    run: _Run | None = None
    entered: dict[tuple[str, str, JobStatus], int] = {}
    fresh: dict[tuple[str, str], Enqueued] = {}
    newcomers: Newcomers | None = None
    for job in jobs:
        if job.dedupe_key is not None:
            taken = fresh.get((job.kind, job.dedupe_key)) or _holder(tx, job, job.dedupe_key)
            if taken is not None:
                answers.append(taken)
                continue
            tx.execute(_TAKE_KEY, (job.kind, job.dedupe_key, key))
        if job.limit_key is None and job.lane is None and not job.track:
            status, head, payload = new_row(job, now)
        else:
            if newcomers is None:
                newcomers = _newcomers(tx)
            lot = newcomers.lot_for(job, is_due=is_due(job, now)) if not job.hold else None
            status, head, payload = bound_row(job, now, lot)
        if run is None or head != run.head:
            run = _Run(key, head)
            runs.append(run)
        run.payloads.append(payload)
        if payload is None:
            tx.execute(_BODY, (key, job.payload))
        sort = (job.queue, job.kind, status)
        entered[sort] = entered.get(sort, 0) + 1
        answers.append(Enqueued(key, ids.job_id(key, now, tag), False, status))
        if job.dedupe_key is not None:
            fresh[job.kind, job.dedupe_key] = Enqueued(key, answers[-1].id, True, status)
        key += 1
    if key > first:
        _write(tx, runs)
        tx.given(key - 1)
        for (queue, kind, status), count in entered.items():
            tx.woken.add(queue)
            if tx.folded:
                tx.books.entered(queue, kind, status, count)
    return answers


class _Run:
    """New jobs with keys in a row that differ in their payload alone."""

    __slots__ = ("first", "head", "payloads")

    def __init__(self, first: int, head: tuple[object, ...]) -> None:
        self.first = first
        self.head = head
        self.payloads: list[bytes | None] = []

    def as_json(self) -> str | None:
        """The payloads as one JSON list, unless JSON could not give each back as it is."""
        try:
            texts = [payload.decode() for payload in self.payloads if payload is not None]
        except UnicodeDecodeError:
            return None
        text = encode(texts).decode()
        return text if len(texts) == len(self.payloads) and "\\u0000" not in text else None


def insert_lone(writer: Writer, job: NewJob, now: Instant, tag: int) -> Enqueued | None:
    """The shortest way for one usual job on the caller's thread; None when it is not open."""
    payload = job.payload
    if not is_usual(job) or not is_due_now(job) or needs_body(payload):
        return None
    values = (job.queue, job.kind, job.priority, now, job.max_attempts, now, payload)
    key = writer.insert_here(_INSERT_LONE, values, woken=job.queue)
    if key is None:
        return None
    if key % _FOLDED_EVERY == 0:
        writer.call_here(Tx.roll_up)
    return Enqueued(key, ids.job_id(key, now, tag), False, JobStatus.PENDING)


def _newcomers(tx: Tx) -> "Newcomers":
    from .limit_buckets import Newcomers

    return Newcomers(tx)


def _holder(tx: Tx, job: NewJob, dedupe_key: str) -> Enqueued | None:
    found = tx.execute(_HOLDER, (job.kind, dedupe_key, tx.now)).fetchone()
    if found is None:
        return None
    key, status, enqueued_at = found
    return Enqueued(key, ids.job_id(key, enqueued_at, tx.tag), True, JobStatus(status))


def _write(tx: Tx, runs: list[_Run]) -> None:
    values: list[object] = []
    for run in runs:
        text = run.as_json() if len(run.payloads) >= _ALIKE_FROM else None
        bound = len(run.head) > _COLUMNS
        if text is not None:
            insert = _INSERT_BOUND_ALIKE if bound else _INSERT_ALIKE
            tx.execute(insert, (run.first, *run.head, text))
            continue
        if bound:
            for place, payload in enumerate(run.payloads):
                tx.execute(_INSERT_BOUND, (run.first + place, *run.head, payload))
            continue
        for place, payload in enumerate(run.payloads):
            values.append(run.first + place)
            values += run.head
            values.append(payload)
    start, left = 0, len(values) // _COLUMNS
    for size in _SIZES:
        width = size * _COLUMNS
        while left >= size:
            tx.execute(_INSERT[size], values[start : start + width])
            start, left = start + width, left - size
