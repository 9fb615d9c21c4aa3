"""Collects the round-trip times of exchanges until they are reported."""

from forge_jobs.core.histogram import Histogram, histogram

_MAX_SAMPLES = 50_000


class StoreLatency:
    """Round trips since the last ``take``. Only the job loop uses it."""

    __slots__ = ("_failed", "_spans_s")

    def __init__(self) -> None:
        self._spans_s: list[float] = []
        self._failed = 0

    def add(self, span_s: float) -> None:
        """A call was answered after this time."""
        if len(self._spans_s) < _MAX_SAMPLES:
            self._spans_s.append(span_s)

    def failed(self) -> None:
        """A call failed."""
        self._failed += 1

    def take(self) -> tuple[Histogram, int]:
        """The times collected so far, and how many calls failed; starts over."""
        spans_s, failed = self._spans_s, self._failed
        self._spans_s, self._failed = [], 0
        return histogram(spans_s), failed
