"""Limits on how many jobs run at once and how often they start: names, rates, and the room left.

A limit is named after what it bounds: ``queue:mail``, ``task:send``. Jobs wait in *lots* while
their key is full: ``task:send/example.com`` for a key of a task, ``lane:mail/chat:7`` for a lane.
Nothing here reads the store; backends count and ask.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET, Struct, structs

from .errors import BadOption
from .instant import SECOND, Instant
from .job import ClaimedJob

QUEUE: Final = "queue:"
TASK: Final = "task:"
SCOPE: Final = "scope:"
LANE: Final = "lane:"
MAX_CONCURRENCY: Final = 100_000
MAX_RATE: Final = 1_000_000.0
UNBOUNDED: Final = 1 << 40

_RATE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*/\s*([0-9]*)\s*(s|m|h|d|sec|min|hour|day)\s*")
_UNIT_S: Final = {
    "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3_600, "hour": 3_600, "d": 86_400, "day": 86_400,
}  # fmt: skip
# A permit that is there but for a rounding error is there.
_ROUNDING: Final = 1e-6


class Declared(Struct, frozen=True, kw_only=True):
    """What code says about a limit. With ``per`` the concurrency counts for each value of that
    argument by itself; the rate always counts for the whole task or queue. ``scopes`` are the
    throttle scopes of a task."""

    name: str
    concurrency: int | None = None
    per: str | None = None
    rate_per_s: float | None = None
    burst: float = 1.0
    scopes: tuple[str, ...] = ()


class Limit(Struct, frozen=True, kw_only=True):
    """A limit as it is stored. ``tokens`` are the starts that were saved up by ``at``;
    ``by_operator``: its numbers were set by a person, and code does not change them."""

    name: str
    concurrency: int | None = None
    per: str | None = None
    rate_per_s: float | None = None
    burst: float = 1.0
    scopes: tuple[str, ...] = ()
    tokens: float = 0.0
    at: Instant = 0
    by_operator: bool = False
    updated_at: Instant = 0

    @property
    def tracked(self) -> bool:
        """Whether jobs of this task stand in a line of their own, for the claim to measure out."""
        capped = self.concurrency is not None and self.per is None
        return capped or self.rate_per_s is not None or bool(self.scopes)

    @property
    def cap(self) -> int | None:
        """How many jobs of the whole task or queue may run at once."""
        return self.concurrency if self.per is None else None


@dataclass(slots=True)
class Room:
    """What a claim may take: ``left`` jobs, and whether any of them before they can start."""

    left: int = UNBOUNDED
    may_prefetch: bool = True


def queue_limit(queue: str) -> str:
    """The name of a queue's limit."""
    return QUEUE + queue


def task_limit(kind: str) -> str:
    """The name of a task's limit."""
    return TASK + kind


def scope_gate(scope: str) -> str:
    """The name under which the gate of a throttle scope is kept; no queue can have it."""
    return SCOPE + scope


def key_bucket(kind: str, value: str) -> str:
    """The limit key of jobs of a task that share one value."""
    return f"{TASK}{kind}/{value}"


def lane_bucket(queue: str, lane: str) -> str:
    """The lot of a lane, which belongs to its queue."""
    return f"{LANE}{queue}/{lane}"


def limit_of(limit_key: str) -> str:
    """The limit that says how many jobs of a key may run."""
    return limit_key.partition("/")[0]


def rate_of(text: object, *, field: str = "rate") -> tuple[float, float]:
    """Starts per second and burst (one second's worth, at least 1) of a text such as "50/m"."""
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise BadOption(
            f'{field}={text!r} is not a rate: write "50/m", "100/s", "10/30s" or "1000/h"'
        )
    count, times, unit = found.groups()
    span_s = int(times or 1) * _UNIT_S[unit]
    per_s = float(count) / span_s if span_s else 0.0
    if not 0 < per_s <= MAX_RATE:
        raise BadOption(f"{field}={text!r} must lie above 0 and not above {MAX_RATE:,.0f}/s")
    return per_s, max(1.0, per_s)


def rate_text(per_s: float) -> str:
    """A rate as people write it."""
    for unit, span_s in (("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)):
        count = per_s * span_s
        if count >= 1:
            return f"{count:.6g}/{unit}"
    return f"{per_s * 86_400:.3g}/d"


def check(limit: Limit) -> Limit:
    """The limit itself, or BadOption for a number outside its range."""
    if limit.concurrency is not None and not 0 <= limit.concurrency <= MAX_CONCURRENCY:
        raise BadOption(
            f"concurrency={limit.concurrency} of {limit.name} must lie between 0 and "
            f"{MAX_CONCURRENCY:,}"
        )
    if limit.rate_per_s is not None and not 0 < limit.rate_per_s <= MAX_RATE:
        raise BadOption(
            f"the rate of {limit.name} must lie above 0 and not above {MAX_RATE:,.0f}/s"
        )
    if not 1 <= limit.burst <= MAX_RATE:
        raise BadOption(f"burst={limit.burst:g} of {limit.name} must lie between 1 and a million")
    return limit


def with_declared(known: Limit | None, told: Declared, now: Instant) -> Limit:
    """The limit after code declared it: a person's numbers stay, and so do the saved-up starts."""
    if known is None:
        fresh = Limit(
            name=told.name,
            concurrency=told.concurrency,
            per=told.per,
            rate_per_s=told.rate_per_s,
            burst=told.burst,
            scopes=told.scopes,
            tokens=told.burst,
            at=now,
            updated_at=now,
        )
        return check(fresh)
    if known.by_operator:
        changed = structs.replace(known, per=told.per, scopes=told.scopes)
    else:
        changed = structs.replace(
            known,
            concurrency=told.concurrency,
            per=told.per,
            rate_per_s=told.rate_per_s,
            burst=told.burst,
            scopes=told.scopes,
        )
    if changed == known:
        return known
    changed = structs.replace(refilled(known, now), **_numbers(changed), updated_at=now)
    return check(structs.replace(changed, tokens=min(changed.tokens, changed.burst)))


def with_operator_change(
    known: Limit | None, name: str, asked: Mapping[str, Any], now: Instant
) -> Limit:
    """The limit after an operator's word; values of ``asked`` that are UNSET stay."""
    given = {field: value for field, value in asked.items() if value is not UNSET}
    before = refilled(known, now) if known is not None else Limit(name=name, at=now)
    limit = structs.replace(before, **given, by_operator=True, updated_at=now)
    if "burst" not in given and "rate_per_s" in given and limit.rate_per_s is not None:
        limit = structs.replace(limit, burst=max(1.0, limit.rate_per_s))
    fresh = known is None or known.rate_per_s is None
    tokens = limit.burst if fresh else min(limit.tokens, limit.burst)
    return check(structs.replace(limit, tokens=tokens, at=max(limit.at, now)))


def _numbers(limit: Limit) -> dict[str, object]:
    return {
        name: getattr(limit, name)
        for name in ("concurrency", "per", "rate_per_s", "burst", "scopes", "by_operator")
    }


def refilled(limit: Limit, now: Instant) -> Limit:
    """The limit with the starts it has saved up by now; time that runs backwards adds nothing."""
    if limit.rate_per_s is None or now <= limit.at:
        return limit
    gained = (now - limit.at) / SECOND * limit.rate_per_s
    return structs.replace(limit, tokens=min(limit.tokens + gained, limit.burst), at=now)


def spent(limit: Limit, starts: int, now: Instant) -> Limit:
    """The limit after that many starts."""
    full = refilled(limit, now)
    return structs.replace(full, tokens=max(full.tokens - starts, 0.0))


def room(limit: Limit | None, running: int, *, now: Instant, asked: int) -> Room:
    """What may be claimed under a task's or queue's limit, of ``asked`` jobs.

    Nothing is claimed ahead under a cap, since a claimed job counts as running; under a rate only
    while more starts are saved up than were asked for.
    """
    found = Room()
    if limit is None:
        return found
    if limit.cap is not None:
        found = Room(max(limit.cap - running, 0), may_prefetch=False)
    if limit.rate_per_s is not None:
        tokens = math.floor(refilled(limit, now).tokens + _ROUNDING)
        found.left = min(found.left, tokens)
        found.may_prefetch = found.may_prefetch and tokens >= asked
    return found


def mark_exclusive(job: ClaimedJob, limits: Mapping[str, Limit]) -> ClaimedJob:
    """The claim, marked with the cap under which it was made: its worker must not go on with it
    once it may have been given to another."""
    if job.limit_key is not None:
        return job
    for name in (task_limit(job.kind), queue_limit(job.queue)):
        limit = limits.get(name)
        if limit is not None and limit.cap is not None:
            return structs.replace(job, limit_key=name)
    return job


def next_start_at(limit: Limit | None, now: Instant) -> Instant | None:
    """When the rate allows one more start; None when it does by now, or sets no bound."""
    if limit is None or limit.rate_per_s is None:
        return None
    missing = 1 - _ROUNDING - refilled(limit, now).tokens
    if missing <= 0:
        return None
    return max(now, limit.at) + math.ceil(missing / limit.rate_per_s * SECOND)
