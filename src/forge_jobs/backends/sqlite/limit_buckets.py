"""Limits as the table stores them, and the number of slots of a limit key."""

from typing import Any, Final

import msgspec

from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.limits import UNBOUNDED, Limit, limit_of

from .counters import Execute

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "limits.sql")


class StoredLimit(Limit, frozen=True, kw_only=False, array_like=True):
    """A limit with its values in the order of the columns, as the snapshot of an exchange reads."""


_scopes_of = msgspec.json.Decoder(tuple[str, ...]).decode


def read_limit(row: tuple[Any, ...]) -> Limit:
    """A limit from its row."""
    name, concurrency, per, rate_per_s, burst, scopes, tokens, at, by_operator, updated_at = row
    return Limit(
        name=name,
        concurrency=concurrency,
        per=per,
        rate_per_s=rate_per_s,
        burst=burst,
        scopes=_scopes_of(scopes),
        tokens=tokens,
        at=at,
        by_operator=bool(by_operator),
        updated_at=updated_at,
    )


def max_per_key(execute: Execute, limit_key: str) -> int:
    """The number of slots of a limit key."""
    found = execute(SQL["limit"], (limit_of(limit_key),)).fetchone()
    if found is None:
        return UNBOUNDED
    limit = read_limit(found)
    bounded = limit.per is not None and limit.concurrency is not None
    return limit.concurrency if bounded and limit.concurrency is not None else UNBOUNDED
