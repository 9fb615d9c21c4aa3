"""Rolls counter entries up into minutes and totals, and reads both.

A transaction only appends one entry. A periodic service rolls the entries up; without a worker, the
writer does so when too many have accumulated.
"""

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from forge_jobs.core.counters import Minute, group_minutes, sum_totals
from forge_jobs.core.instant import Instant
from forge_jobs.core.vitals import Vitals, lifetime_part, merge_vitals

from . import breakdowns
from .counters import SQL, Execute
from .io.transaction import Tx

_minutes_of = msgspec.json.Decoder(list[Minute]).decode
_entries_of = msgspec.json.Decoder(list[list[Minute]]).decode
_vitals_of = msgspec.json.Decoder(list[Vitals]).decode
_sample_of = msgspec.json.Decoder(Vitals).decode
_encode = msgspec.json.encode


def roll_up(execute: Execute, limit: int) -> bool:
    """Merge up to ``limit`` entries into minutes and totals; returns whether there may be more."""
    last_id, count, entries = execute(SQL["oldest_entries"], (max(limit, 1),)).fetchone()
    if not count:
        return False
    parts = group_minutes(_flatten(_entries_of(entries)))
    names = _text([(part.at, part.queue, part.kind) for part in parts])
    known = _minutes_of(execute(SQL["stored_minutes"], (names,)).fetchone()[0])
    merged = group_minutes([*known, *parts])
    minutes = [(part.at, part.queue, part.kind, _text(part)) for part in merged]
    execute(SQL["put_minutes"], (_text(minutes),))
    breakdowns.roll_up(execute, parts, limit)
    ever = sum_totals(parts)
    names = _text([(part.queue, part.kind) for part in ever])
    known = _minutes_of(execute(SQL["stored_totals"], (names,)).fetchone()[0])
    totals = [(part.queue, part.kind, _text(part)) for part in sum_totals([*known, *ever])]
    execute(SQL["put_totals"], (_text(totals),))
    execute(SQL["delete_entries"], (last_id,))
    return count >= limit


def minutes(
    since: Instant, until: Instant, queue: str | None, connection: sqlite3.Connection
) -> list[Minute]:
    """Counters of a time range, including those not rolled up yet; one statement, one snapshot."""
    found = connection.execute(SQL["minutes"], (since, until, queue)).fetchone()
    rolled_up, entries, new = found
    parts = [
        part
        for part in (*_flatten(_entries_of(entries)), *_minutes_of(new))
        if since <= part.at < until and queue in (None, part.queue)
    ]
    return group_minutes([*_minutes_of(rolled_up), *parts])


def totals(connection: sqlite3.Connection) -> list[Minute]:
    """Counters over all time."""
    rolled_up, entries, new = connection.execute(SQL["totals"]).fetchone()
    return sum_totals([*_minutes_of(rolled_up), *_flatten(_entries_of(entries)), *_minutes_of(new)])


def record_vitals(vitals: Vitals, tx: Tx) -> None:
    """Merge a sample into the stored one of its minute, and into the sums over all time."""
    for part in (vitals, lifetime_part(vitals)):
        known = tx.row(SQL["stored_vitals"], (part.at, part.host_id))
        merged = part if known is None else merge_vitals([_sample_of(known[0]), part])
        tx.execute(SQL["put_vitals"], (merged.at, merged.host_id, _text(merged)))


def vitals(since: Instant, until: Instant, connection: sqlite3.Connection) -> list[Vitals]:
    """Samples of processes in a time range."""
    return _vitals_of(connection.execute(SQL["vitals"], (since, until)).fetchone()[0])


def _flatten(entries: Iterable[Sequence[Minute]]) -> list[Minute]:
    return [part for entry in entries for part in entry]


def _text(value: object) -> str:
    return _encode(value).decode()
