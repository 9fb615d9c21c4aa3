"""Histograms of durations with fixed buckets, so that any number of them merge exactly.

The bounds never change: twenty per decade from 100 µs to 10⁶ s (11 days), three coarse ones below.
A percentile is the middle of its bucket: within 7 % of the exact value between 100 µs and 11 days,
within 50 µs below. There are fewer than 256 buckets: a backend may store the bucket of a sample in
one byte.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from math import ceil, sqrt
from typing import Final

from msgspec import Struct

# Renard's twenty steps: round numbers that grow by about 12 %.
_STEPS: Final = (
    100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800,
    900,
)  # fmt: skip
_DECADES: Final = 10
_MICRO: Final = 1_000_000

BOUNDS: Final = (
    *(us / _MICRO for us in (10, 20, 50)),
    *(step * 10**decade / _MICRO for decade in range(_DECADES) for step in _STEPS),
    100 * 10**_DECADES / _MICRO,
)
"""Upper bounds of the buckets in seconds, excluded; longer samples are in one last bucket."""

_LAST: Final = len(BOUNDS)


class Histogram(Struct, frozen=True, omit_defaults=True):
    """The number of samples per bucket (by its number), and the sum of all samples."""

    sum_s: float = 0.0
    buckets: dict[int, int] = {}

    @property
    def count(self) -> int:
        """How many samples there are."""
        return sum(self.buckets.values())

    @property
    def mean_s(self) -> float | None:
        """The exact mean; None without samples."""
        count = self.count
        return self.sum_s / count if count else None

    @property
    def max_s(self) -> float | None:
        """The longest sample, as exact as a percentile; None without samples."""
        return self.quantile(1.0)

    def quantile(self, share: float) -> float | None:
        """The sample at or below which ``share`` of all samples are (nearest rank); None without
        any."""
        rank = max(1, ceil(share * self.count))
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= rank:
                return middle_s(bucket)
        return None

    def up_to(self, bound_s: float) -> int:
        """How many samples are shorter than one of ``BOUNDS``."""
        last = bisect_left(BOUNDS, bound_s)
        return sum(samples for bucket, samples in self.buckets.items() if bucket <= last)


EMPTY: Final = Histogram()


def bucket_of(span_s: float) -> int:
    """The bucket of one sample."""
    return bisect_right(BOUNDS, span_s)


def middle_s(bucket: int) -> float:
    """The value that represents the samples of a bucket."""
    if bucket <= 0:
        return BOUNDS[0] / 2
    if bucket >= _LAST:
        return BOUNDS[-1]
    return sqrt(BOUNDS[bucket - 1] * BOUNDS[bucket])


def histogram(spans_s: Iterable[float]) -> Histogram:
    """All samples at once; sorting them is cheaper than looking up the bucket of each."""
    ordered = sorted(spans_s)
    buckets: dict[int, int] = {}
    start, end = 0, len(ordered)
    while start < end:
        bucket = bisect_right(BOUNDS, ordered[start])
        after = end if bucket == _LAST else bisect_left(ordered, BOUNDS[bucket], start)
        buckets[bucket] = after - start
        start = after
    return Histogram(sum(ordered), buckets)


def merged(parts: Iterable[Histogram]) -> Histogram:
    """The histogram of all samples of the parts, independent of their order."""
    sum_s, buckets = 0.0, dict[int, int]()
    for part in parts:
        sum_s += part.sum_s
        for bucket, samples in part.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + samples
    return Histogram(sum_s, dict(sorted(buckets.items()))) if buckets else EMPTY
