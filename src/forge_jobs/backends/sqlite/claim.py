"""Claims pending jobs: the short path, which claims many jobs in two statements."""

from collections.abc import Sequence
from itertools import repeat
from typing import Final

import msgspec
from msgspec import structs

from forge_jobs.backends.shared.rowwise import dedupe_keys
from forge_jobs.backends.shared.rowwise.steps import claimed_steps
from forge_jobs.core.errors import Corrupt
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import ClaimedJob
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Want

from .io.transaction import Tx
from .json_text import as_json
from .rows import HAS_STEPS, SEPARATOR, SLOW_FINISH, SLOW_START, read_details, read_options
from .short_finish import SQL

_CANDIDATES: Final = SQL["candidates"]
_CLAIM: Final = SQL["claim"]
_CLAIM_BY_KEYS: Final = SQL["claim_by_keys"]
_FIELDS: Final = 6
_CLAIM_RANGE: Final = SQL["claim_range"]
_numbers_of = msgspec.json.Decoder(list[int]).decode
_Extra = tuple[int, int, int, str | None, str | None, str | None]
_extras_of = msgspec.json.Decoder(list[_Extra]).decode


class Claimed:
    """The claims of one exchange, and the keys of those without the short path for their finish."""

    __slots__ = ("jobs", "slow_finish")

    def __init__(self) -> None:
        self.jobs: list[ClaimedJob] = []
        self.slow_finish: list[int] = []


def claim(
    tx: Tx,
    owner: int,
    number: int,
    want: Want,
    claimed: Claimed,
    tracked_kinds: frozenset[str] = frozenset(),
) -> int:
    """Claim jobs for one want. Returns how many, or -1, without effect, if a candidate has one of
    ``tracked_kinds`` and belongs on a track."""
    free = max(want.free, 0)
    limit = free + max(want.prefetch, 0)
    if limit == 0:
        return 0
    only = as_json(want.kinds) if want.kinds else None
    ids, numbers, kinds, payloads, extras = tx.row(_CANDIDATES, (want.queue, tx.now, limit, only))
    if ids is None:
        return 0
    if tracked_kinds and not tracked_kinds.isdisjoint(kinds.split("\x1e")):
        return -1
    jobs = _build(want.queue, ids, numbers, kinds, payloads)
    count = len(jobs)
    if extras != "[]":
        _add_extras(tx, jobs, _extras_of(extras), free, claimed)
    keys = [job.key for job in jobs]
    if count <= free:
        _write_claims(tx, owner, number, tx.now, keys)
    else:
        if free:
            _write_claims(tx, owner, number, tx.now, keys[:free])
        _write_claims(tx, owner, number, None, keys[free:])
        jobs[free:] = [_prefetched(job) for job in jobs[free:]]
    claimed.jobs.extend(jobs)
    _count(tx, want.queue, kinds, count)
    return count


def claim_by_keys(
    tx: Tx, owner: int, number: int, want: Want, keys: Sequence[int], claimed: Claimed
) -> None:
    """Claim selected jobs, in claim order."""
    free = max(want.free, 0)
    ids, numbers, kinds, payloads, extras = tx.row(SQL["by_keys"], (as_json(keys),))
    jobs = _build(want.queue, ids, numbers, kinds, payloads)
    if extras != "[]":
        _add_extras(tx, jobs, _extras_of(extras), free, claimed)
    ordered = [job.key for job in jobs]
    for at, part in ((tx.now, ordered[:free]), (None, ordered[free:])):
        if part:
            tx.execute(_CLAIM_BY_KEYS, (owner, number, at, as_json(part)))
    jobs[free:] = [_prefetched(job) for job in jobs[free:]]
    claimed.jobs.extend(jobs)
    _count(tx, want.queue, kinds, len(jobs))


def _write_claims(tx: Tx, owner: int, number: int, at: int | None, keys: list[int]) -> None:
    """Write claims of distinct keys; consecutive keys need no list."""
    low, high = min(keys), max(keys)
    if high - low + 1 == len(keys):
        tx.execute(_CLAIM_RANGE, (owner, number, at, low, high))
    else:
        tx.execute(_CLAIM, (owner, number, at, as_json(keys)))


def _build(queue: str, ids: str, numbers: str, kinds: str, payloads: bytes) -> list[ClaimedJob]:
    """The claims as they will be stored: with epoch and attempts incremented."""
    keys, values = _numbers_of(ids), _numbers_of(numbers)
    texts, names = payloads.split(SEPARATOR), kinds.split("\x1e")
    if not len(keys) == len(texts) == len(names) == len(values) // _FIELDS:
        raise Corrupt("a stored payload or kind holds a control character")
    count = len(keys)
    columns = [values[index * count : (index + 1) * count] for index in range(_FIELDS)]
    epochs, attempts, max_attempts, enqueued, due, priorities = columns
    return list(
        map(
            ClaimedJob,
            keys,
            [epoch + 1 for epoch in epochs],
            names,
            repeat(queue),
            texts,
            [attempt + 1 for attempt in attempts],
            max_attempts,
            enqueued,
            due,
            repeat(True),
            priorities,
        )
    )


def _prefetched(job: ClaimedJob) -> ClaimedJob:
    return structs.replace(job, started=False)


def _add_extras(
    tx: Tx, jobs: list[ClaimedJob], extras: Sequence[_Extra], free: int, claimed: Claimed
) -> None:
    """Add options, details and large payloads to the jobs that have them."""
    index_of = {job.key: index for index, job in enumerate(jobs)}
    expiring: list[int] = []
    unique_while_waiting: list[int] = []
    failed_runs: dict[int, int] = {}
    for key, slow_path, has_body, options_text, details_text, limit_key in extras:
        index = index_of[key]
        options, details = read_options(options_text), read_details(details_text)
        payload = jobs[index].payload
        if has_body:
            (payload,) = tx.row(SQL["body"], (key,))
        jobs[index] = structs.replace(
            jobs[index],
            payload=payload,
            crashes=details.crashes,
            timeout_s=options.timeout_s,
            throttled_since=details.throttled_since,
            missing_since=details.missing_since,
            tags=options.tags,
            limit_key=limit_key,
            trace=options.trace,
            options=options.rare,
        )
        if slow_path & HAS_STEPS:
            failed_runs[key] = details.failed_runs
        if slow_path & SLOW_FINISH:
            claimed.slow_finish.append(key)
        if slow_path & SLOW_START:
            expiring.append(key)
            if index < free:
                unique_while_waiting.append(key)
    if failed_runs:
        for key, found in tx.steps.first_of(list(failed_runs)).items():
            steps = claimed_steps(found, failed_runs[key])
            jobs[index_of[key]] = structs.replace(jobs[index_of[key]], steps=steps)
    if expiring:
        tx.execute(SQL["clear_expiry"], (as_json(expiring),))
    for row in tx.load(unique_while_waiting).values() if unique_while_waiting else ():
        dedupe_keys.started(tx, row)


def _count(tx: Tx, queue: str, kinds: str, count: int) -> None:
    first = kinds.partition("\x1e")[0]
    names = kinds.split("\x1e")
    if names.count(first) == count:
        tx.counters.transitioned(queue, first, JobStatus.PENDING, JobStatus.RUNNING, count)
        return
    for name in set(names):
        tx.counters.transitioned(
            queue, name, JobStatus.PENDING, JobStatus.RUNNING, names.count(name)
        )


def next_due(tx: Tx, queue: str) -> Instant | None:
    """The earliest time of a scheduled or failed job of a queue."""
    return tx.row(SQL["next_due"], (queue,))[0]
