"""Comparing a store with the model: records, counts, claims, and what always holds."""

import json
from collections import Counter
from collections.abc import Sequence

from forge_jobs.core.counters import Minute
from forge_jobs.core.error_groups import ErrorGroup
from forge_jobs.core.job import ClaimedJob, JobRecord
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.store.store import Store

from .model import Model
from .state import CANCELLED, ENDED, RUNNING, SOME_TEXT, Job

_COPIED = (
    "kind", "queue", "priority", "max_attempts", "tags", "dedupe_key", "dedupe_for_s",
    "unique_while", "limit_key", "lane", "order", "on_dead",
)  # fmt: skip
_KEPT = (
    "id", "status", "attempts", "epoch", "owner", "run_at", "enqueued_at", "finished_at",
    "expires_at", "result", "crashes", "throttles", "throttled_since", "missing_since",
    "limit_bucket", "has_steps", "failed_runs",
)  # fmt: skip
_TOTALS = (
    "enqueued", "started", "done", "retried", "dead", "cancelled", "throttled", "released",
)  # fmt: skip


async def records_of(store: Store) -> dict[int, JobRecord]:
    """Every job of the store."""
    found: dict[int, JobRecord] = {}
    cursor = None
    while True:
        page = await store.jobs.page(Filter(), limit=500, after=cursor)
        found |= {record.key: record for record in page.jobs}
        cursor = page.next
        if cursor is None:
            return found


async def counts_of(store: Store) -> dict[tuple[str, JobStatus], int]:
    """The counts of the metrics without empty ones."""
    return {(row.queue, row.status): row.jobs for row in await store.metrics.counts() if row.jobs}


def check_sound(record: JobRecord, before: JobRecord | None) -> None:
    """What holds for every job at any moment."""
    assert (record.owner is not None) == (record.status is RUNNING), record
    assert (record.finished_at is not None) == (record.status in ENDED), record
    assert 0 <= record.attempts <= record.max_attempts, record
    assert record.cancel_requested_at is None or record.status is RUNNING, record
    assert before is None or record.epoch >= before.epoch, record


def check_records(model: Model, records: dict[int, JobRecord]) -> None:
    """The store has exactly the records of the model."""
    _adopt_expired(model, records)
    assert sorted(records) == sorted(model.jobs)
    for key, record in records.items():
        job = model.jobs[key]
        seen, expected = _seen(record), _expected(job)
        if job.last_error == SOME_TEXT and record.last_error:
            seen["last_error"] = SOME_TEXT
        if seen != expected:
            wrong = {
                name: {"store": seen[name], "model": expected[name]}
                for name in seen
                if seen[name] != expected[name]
            }
            raise AssertionError(f"job {key} ({job.asked}): {wrong}")


def check_counts(model: Model, counts: dict[tuple[str, JobStatus], int]) -> None:
    """The counters of the metrics agree with the rows."""
    assert counts == Counter((job.queue, job.status) for job in model.jobs.values())


def check_claims(model: Model, claims: Sequence[ClaimedJob], expected: list[list[Job]]) -> None:
    """The claims of each want, in order, as a worker needs them."""
    seen: dict[str, list[tuple[object, ...]]] = {}
    for claim in claims:
        seen.setdefault(claim.queue, []).append(_claim(claim))
    wanted = {jobs[0].queue: [_claim_of(job) for job in jobs] for jobs in expected if jobs}
    assert seen == wanted


def check_totals(model: Model, minutes: Sequence[Minute]) -> None:
    """Every claim has had exactly one outcome, and the metrics have counted it."""
    seen = Counter(
        {(one.queue, one.kind, name): getattr(one, name) for one in minutes for name in _TOTALS}
    )
    assert +seen == +model.totals


def check_failures(model: Model, groups: Sequence[ErrorGroup]) -> None:
    """Every failed attempt is counted once in an error group."""
    seen: Counter[str] = Counter()
    for group in groups:
        seen.update(group.kinds)
    assert seen == +model.failures
    assert sum(group.count for group in groups) == model.failures.total()


def _adopt_expired(model: Model, records: dict[int, JobRecord]) -> None:
    """A claim may cancel an expired row that it reads, or skip it: both are allowed."""
    for job in list(model.jobs.values()):
        record = records.get(job.key)
        if record is None or record.status is not CANCELLED or job.buckets:
            continue
        if job.waiting and job.expired(model.now):
            model.expire(job)


def _payload(payload: bytes) -> object:
    """The payload of an on_dead job is compared by value, any other byte by byte."""
    decoded = json.loads(payload)
    return decoded if "job" in decoded else payload


def _seen(record: JobRecord) -> dict[str, object]:
    seen: dict[str, object] = {name: getattr(record, name) for name in (*_COPIED, *_KEPT)}
    seen["payload"] = _payload(record.payload)
    seen["last_error"] = record.last_error
    seen["errors"] = [(error.attempt, error.message) for error in record.errors]
    seen["stop_at"] = record.cancel_requested_at
    seen["started"] = record.status is RUNNING and record.started_at is not None
    return seen


def _expected(job: Job) -> dict[str, object]:
    expected: dict[str, object] = {name: getattr(job.asked, name) for name in _COPIED}
    expected |= {name: getattr(job, name) for name in _KEPT}
    expected["payload"] = _payload(job.asked.payload)
    expected["last_error"] = job.last_error
    expected["errors"] = job.errors
    expected["stop_at"] = job.stop_at
    expected["started"] = job.status is RUNNING and job.started
    return expected


def _claim(claim: ClaimedJob) -> tuple[object, ...]:
    return (
        claim.key, claim.epoch, claim.kind, _payload(claim.payload), claim.attempts,
        claim.max_attempts, claim.enqueued_at, claim.run_at, claim.started, claim.priority,
        claim.crashes, claim.throttled_since, claim.missing_since, claim.tags,
    )  # fmt: skip


def _claim_of(job: Job) -> tuple[object, ...]:
    asked = job.asked
    return (
        job.key, job.epoch, job.kind, _payload(asked.payload), job.attempts,
        asked.max_attempts, job.enqueued_at, job.run_at, job.started, asked.priority,
        job.crashes, job.throttled_since, job.missing_since, asked.tags,
    )  # fmt: skip
