"""How long the store took to answer: gathered by the pump, taken by whoever reports it."""

from forge_jobs.core.histogram import Histogram, histogram

_MAX_SAMPLES = 50_000


class StoreLatency:
    """Round trips since they were last taken. Only the job loop touches it."""

    __slots__ = ("_failed", "_spans_s")

    def __init__(self) -> None:
        self._spans_s: list[float] = []
        self._failed = 0

    def add(self, span_s: float) -> None:
        """One call was answered."""
        if len(self._spans_s) < _MAX_SAMPLES:
            self._spans_s.append(span_s)

    def failed(self) -> None:
        """One call was not."""
        self._failed += 1

    def take(self) -> tuple[Histogram, int]:
        """What gathered: the spans, and how many calls failed."""
        spans_s, failed = self._spans_s, self._failed
        self._spans_s, self._failed = [], 0
        return histogram(spans_s), failed
