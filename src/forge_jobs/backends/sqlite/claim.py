"""From pending to running: the short path that claims many jobs in two statements."""

from collections.abc import Sequence
from itertools import repeat
from typing import Final

import msgspec
from msgspec import structs

from forge_jobs.core.errors import Corrupt
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import ClaimedJob
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Want

from . import dedupe_keys, transitions
from .finish import SQL
from .io.transaction import Tx
from .rows import AT_END, AT_START, SEPARATOR, read_options, read_state
from .transitions import as_json

_CANDIDATES: Final = SQL["candidates"]
_CLAIM: Final = SQL["claim"]
_CLAIM_CHOSEN: Final = SQL["claim_chosen"]
_FIELDS: Final = 6
_CLAIM_RANGE: Final = SQL["claim_range"]
_numbers_of = msgspec.json.Decoder(list[int]).decode
_Unusual = tuple[int, int, int, str | None, str | None, str | None]
_unusual_of = msgspec.json.Decoder(list[_Unusual]).decode


class Claimed:
    """The claims of one exchange, and which of them need more than a done mark at their end."""

    __slots__ = ("at_end", "jobs")

    def __init__(self) -> None:
        self.jobs: list[ClaimedJob] = []
        self.at_end: list[int] = []


def claim(
    tx: Tx,
    owner: int,
    number: int,
    want: Want,
    into: Claimed,
    apart: frozenset[str] = frozenset(),
) -> int:
    """Serve one want; how many jobs it got, or -1 for none because one of them is of a kind that
    belongs on a track."""
    free = max(want.free, 0)
    most = free + max(want.prefetch, 0)
    if most == 0:
        return 0
    only = as_json(want.kinds) if want.kinds else None
    ids, numbers, kinds, payloads, unusual = tx.row(_CANDIDATES, (want.queue, tx.now, most, only))
    if ids is None:
        return 0
    if apart and not apart.isdisjoint(kinds.split("\x1e")):
        return -1
    jobs = _build(want.queue, ids, numbers, kinds, payloads)
    count = len(jobs)
    if unusual != "[]":
        _amend(tx, jobs, _unusual_of(unusual), free, into)
    chosen = [job.key for job in jobs]
    if count <= free:
        _take(tx, owner, number, tx.now, chosen)
    else:
        if free:
            _take(tx, owner, number, tx.now, chosen[:free])
        _take(tx, owner, number, None, chosen[free:])
        jobs[free:] = [_prefetched(job) for job in jobs[free:]]
    into.jobs.extend(jobs)
    _count(tx, want.queue, kinds, count)
    return count


def claim_chosen(
    tx: Tx, owner: int, number: int, want: Want, chosen: Sequence[int], into: Claimed
) -> None:
    """Claim jobs that were chosen by their keys, in the order of the line."""
    free = max(want.free, 0)
    ids, numbers, kinds, payloads, unusual = tx.row(SQL["chosen"], (as_json(chosen),))
    jobs = _build(want.queue, ids, numbers, kinds, payloads)
    if unusual != "[]":
        _amend(tx, jobs, _unusual_of(unusual), free, into)
    keys_in_line = [job.key for job in jobs]
    for at, part in ((tx.now, keys_in_line[:free]), (None, keys_in_line[free:])):
        if part:
            tx.execute(_CLAIM_CHOSEN, (owner, number, at, as_json(part)))
    jobs[free:] = [_prefetched(job) for job in jobs[free:]]
    into.jobs.extend(jobs)
    _count(tx, want.queue, kinds, len(jobs))


def _take(tx: Tx, owner: int, number: int, at: int | None, chosen: list[int]) -> None:
    """Write claims of distinct keys; a run of neighbours needs no list."""
    low, high = min(chosen), max(chosen)
    if high - low + 1 == len(chosen):
        tx.execute(_CLAIM_RANGE, (owner, number, at, low, high))
    else:
        tx.execute(_CLAIM, (owner, number, at, as_json(chosen)))


def _build(queue: str, ids: str, numbers: str, kinds: str, payloads: bytes) -> list[ClaimedJob]:
    """The claims as they will be once they are written: epoch and attempts one higher."""
    chosen, flat = _numbers_of(ids), _numbers_of(numbers)
    texts, names = payloads.split(SEPARATOR), kinds.split("\x1e")
    if not len(chosen) == len(texts) == len(names) == len(flat) // _FIELDS:
        raise Corrupt("a stored payload or kind holds a control character")
    count = len(chosen)
    columns = [flat[place * count : (place + 1) * count] for place in range(_FIELDS)]
    epochs, attempts, most, enqueued, due, priorities = columns
    return list(
        map(
            ClaimedJob,
            chosen,
            [epoch + 1 for epoch in epochs],
            names,
            repeat(queue),
            texts,
            [attempt + 1 for attempt in attempts],
            most,
            enqueued,
            due,
            repeat(True),
            priorities,
        )
    )


def _prefetched(job: ClaimedJob) -> ClaimedJob:
    return structs.replace(job, started=False)


def _amend(
    tx: Tx, jobs: list[ClaimedJob], unusual: Sequence[_Unusual], free: int, into: Claimed
) -> None:
    """Options, facts and large payloads of the jobs that have them."""
    place_of = {job.key: place for place, job in enumerate(jobs)}
    mortal: list[int] = []
    waiting_only: list[int] = []
    for key, special, has_body, options_text, state_text, limit_key in unusual:
        place = place_of[key]
        options, state = read_options(options_text), read_state(state_text)
        payload = jobs[place].payload
        if has_body:
            (payload,) = tx.row(SQL["body"], (key,))
        jobs[place] = structs.replace(
            jobs[place],
            payload=payload,
            crashes=state.crashes,
            timeout_s=options.timeout_s,
            throttled_since=state.throttled_since,
            missing_since=state.missing_since,
            tags=options.tags,
            limit_key=limit_key,
            trace=options.trace,
            options=options.rare,
        )
        if special & AT_END:
            into.at_end.append(key)
        if special & AT_START:
            mortal.append(key)
            if place < free:
                waiting_only.append(key)
    if mortal:
        tx.execute(SQL["undying"], (as_json(mortal),))
    for row in transitions.load(tx, waiting_only).values() if waiting_only else ():
        dedupe_keys.started(tx, row)


def _count(tx: Tx, queue: str, kinds: str, count: int) -> None:
    first = kinds.partition("\x1e")[0]
    names = kinds.split("\x1e")
    if names.count(first) == count:
        tx.books.moved(queue, first, JobStatus.PENDING, JobStatus.RUNNING, count)
        return
    for name in set(names):
        tx.books.moved(queue, name, JobStatus.PENDING, JobStatus.RUNNING, names.count(name))


def next_due(tx: Tx, queue: str) -> Instant | None:
    """The earliest time of a scheduled or failed job of a queue."""
    return tx.row(SQL["next_due"], (queue,))[0]
