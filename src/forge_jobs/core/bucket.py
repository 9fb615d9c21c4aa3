"""Token buckets: how many permits are there, and when the next one comes. No clock in here."""

import math
from typing import Final

from msgspec import Struct, structs

from .errors import BadOption
from .instant import SECOND, Instant

CAPACITY_MOST: Final = 1_000_000_000.0
# A permit that is there but for a rounding error is there.
_ROUNDING: Final = 1e-6


class Bucket(Struct, frozen=True, kw_only=True):
    """A token bucket: ``tokens`` as of ``at``."""

    scope: str
    capacity: float
    refill_per_s: float
    tokens: float
    at: Instant


class Grant(Struct, frozen=True):
    """``granted`` permits now; with fewer than asked for, one more is there after ``retry_s``
    (None: nothing is ever refilled)."""

    granted: int
    retry_s: float | None = None


def full(scope: str, *, capacity: float, refill_per_s: float, now: Instant) -> Bucket:
    """A new bucket."""
    return Bucket(
        scope=scope, capacity=capacity, refill_per_s=refill_per_s, tokens=capacity, at=now
    )


def filled(bucket: Bucket, now: Instant) -> Bucket:
    """The bucket as of now; time that runs backwards refills nothing."""
    gained = max(now - bucket.at, 0) / SECOND * bucket.refill_per_s
    tokens = min(bucket.tokens + gained, bucket.capacity)
    return structs.replace(bucket, tokens=tokens, at=max(now, bucket.at))


def resized(bucket: Bucket, *, capacity: float, refill_per_s: float, now: Instant) -> Bucket:
    """Another size and rate, keeping what is in it and fits."""
    known = filled(bucket, now)
    return structs.replace(
        known, capacity=capacity, refill_per_s=refill_per_s, tokens=min(known.tokens, capacity)
    )


def taken(bucket: Bucket, permits: int, now: Instant) -> tuple[Bucket, Grant]:
    """Take up to that many whole permits."""
    known = filled(bucket, now)
    granted = min(max(permits, 0), math.floor(known.tokens + _ROUNDING))
    left = structs.replace(known, tokens=max(known.tokens - granted, 0.0))
    if granted >= permits or left.refill_per_s <= 0:
        return left, Grant(granted)
    wait = math.ceil((1 - left.tokens) / left.refill_per_s * SECOND) + left.at - now
    return left, Grant(granted, wait / SECOND)


def check_bucket(scope: str, *, capacity: float, refill_per_s: float) -> None:
    """BadOption for a bucket that could never give anything, or numbers that are none."""
    if not 1 <= capacity <= CAPACITY_MOST:
        raise BadOption(
            f"rate limit {scope!r}: burst={capacity:g} must lie between 1 and {CAPACITY_MOST:,.0f}"
        )
    if not 0 <= refill_per_s <= CAPACITY_MOST:
        raise BadOption(f"rate limit {scope!r}: a rate of {refill_per_s:g} per second is none")
