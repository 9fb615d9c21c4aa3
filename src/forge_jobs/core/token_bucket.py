"""Token buckets: how many permits there are now, and when the next one is added."""

import math
from typing import Final

from msgspec import Struct, structs

from .errors import BadOption
from .instant import SECOND, Instant

MAX_CAPACITY: Final = 1_000_000_000.0
# A permit that is missing only by a rounding error counts.
_ROUNDING: Final = 1e-6


class TokenBucket(Struct, frozen=True, kw_only=True):
    """A token bucket: ``tokens`` as of ``at``."""

    scope: str
    capacity: float
    refill_per_s: float
    tokens: float
    at: Instant


class Grant(Struct, frozen=True):
    """``granted`` permits now. If fewer than requested, the next one is there after ``retry_s``;
    None: the bucket is never refilled."""

    granted: int
    retry_s: float | None = None


def full(scope: str, *, capacity: float, refill_per_s: float, now: Instant) -> TokenBucket:
    """A new, full bucket."""
    return TokenBucket(
        scope=scope, capacity=capacity, refill_per_s=refill_per_s, tokens=capacity, at=now
    )


def filled(bucket: TokenBucket, now: Instant) -> TokenBucket:
    """The bucket as of now. A clock that is set back refills nothing."""
    gained = max(now - bucket.at, 0) / SECOND * bucket.refill_per_s
    tokens = min(bucket.tokens + gained, bucket.capacity)
    return structs.replace(bucket, tokens=tokens, at=max(now, bucket.at))


def resized(
    bucket: TokenBucket, *, capacity: float, refill_per_s: float, now: Instant
) -> TokenBucket:
    """The bucket with another capacity and rate; it keeps its tokens up to the new capacity."""
    known = filled(bucket, now)
    return structs.replace(
        known, capacity=capacity, refill_per_s=refill_per_s, tokens=min(known.tokens, capacity)
    )


def taken(bucket: TokenBucket, permits: int, now: Instant) -> tuple[TokenBucket, Grant]:
    """Take up to that many whole permits."""
    known = filled(bucket, now)
    granted = min(max(permits, 0), math.floor(known.tokens + _ROUNDING))
    left = structs.replace(known, tokens=max(known.tokens - granted, 0.0))
    if granted >= permits or left.refill_per_s <= 0:
        return left, Grant(granted)
    wait = math.ceil((1 - left.tokens) / left.refill_per_s * SECOND) + left.at - now
    return left, Grant(granted, wait / SECOND)


def check_bucket(scope: str, *, capacity: float, refill_per_s: float) -> None:
    """BadOption for a bucket that could never grant a permit, or numbers outside their range."""
    if not 1 <= capacity <= MAX_CAPACITY:
        raise BadOption(
            f"rate limit {scope!r}: burst={capacity:g} must lie between 1 and {MAX_CAPACITY:,.0f}"
        )
    if not 0 <= refill_per_s <= MAX_CAPACITY:
        raise BadOption(f"rate limit {scope!r}: a rate of {refill_per_s:g} per second is none")
