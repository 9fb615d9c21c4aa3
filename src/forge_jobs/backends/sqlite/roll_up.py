"""From the lines of the ledger to minutes and totals: merged here, in the transaction of a fold.

A writer appends one line and is done. The lines are brought together by a tick, and by whichever
writer finds that too many have gathered because nobody ticks.
"""

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from forge_jobs.core.counters import Minute, group_minutes, sum_totals
from forge_jobs.core.instant import Instant
from forge_jobs.core.vitals import Vitals, lifetime_part, merge_vitals

from .counters import SQL, Execute
from .io.transaction import Tx

_minutes_of = msgspec.json.Decoder(list[Minute]).decode
_lines_of = msgspec.json.Decoder(list[list[Minute]]).decode
_vitals_of = msgspec.json.Decoder(list[Vitals]).decode
_one_of = msgspec.json.Decoder(Vitals).decode
_encode = msgspec.json.encode


def roll_up(execute: Execute, limit: int) -> bool:
    """Bring up to ``limit`` lines into minutes and totals; whether there may be more."""
    top, count, lines = execute(SQL["lines"], (max(limit, 1),)).fetchone()
    if not count:
        return False
    parts = group_minutes(_flat(_lines_of(lines)))
    names = _text([(part.at, part.queue, part.kind) for part in parts])
    known = _minutes_of(execute(SQL["known_minutes"], (names,)).fetchone()[0])
    minutes = [
        (part.at, part.queue, part.kind, _text(part)) for part in group_minutes([*known, *parts])
    ]
    execute(SQL["set_minutes"], (_text(minutes),))
    gained = sum_totals(parts)
    names = _text([(part.queue, part.kind) for part in gained])
    known = _minutes_of(execute(SQL["known_totals"], (names,)).fetchone()[0])
    totals = [(part.queue, part.kind, _text(part)) for part in sum_totals([*known, *gained])]
    execute(SQL["set_totals"], (_text(totals),))
    execute(SQL["drop_lines"], (top,))
    return count >= limit


def minutes(
    since: Instant, until: Instant, queue: str | None, connection: sqlite3.Connection
) -> list[Minute]:
    """What happened in a range, with what is not folded yet: one statement, one moment."""
    found = connection.execute(SQL["minutes"], (since, until, queue)).fetchone()
    folded, lines, fresh = found
    parts = [
        part
        for part in (*_flat(_lines_of(lines)), *_minutes_of(fresh))
        if since <= part.at < until and queue in (None, part.queue)
    ]
    return group_minutes([*_minutes_of(folded), *parts])


def totals(connection: sqlite3.Connection) -> list[Minute]:
    """Everything that ever happened."""
    folded, lines, fresh = connection.execute(SQL["totals"]).fetchone()
    return sum_totals([*_minutes_of(folded), *_flat(_lines_of(lines)), *_minutes_of(fresh)])


def record_vitals(told: Vitals, tx: Tx) -> None:
    """Add a report to what is known of the minute, and to what grows only."""
    for part in (told, lifetime_part(told)):
        known = tx.row(SQL["known_vitals"], (part.at, part.host_id))
        whole = part if known is None else merge_vitals([_one_of(known[0]), part])
        tx.execute(SQL["set_vitals"], (whole.at, whole.host_id, _text(whole)))


def vitals(since: Instant, until: Instant, connection: sqlite3.Connection) -> list[Vitals]:
    """How processes fared in a range."""
    return _vitals_of(connection.execute(SQL["vitals"], (since, until)).fetchone()[0])


def _flat(lines: Iterable[Sequence[Minute]]) -> list[Minute]:
    return [part for line in lines for part in line]


def _text(value: object) -> str:
    return _encode(value).decode()
