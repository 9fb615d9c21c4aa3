"""Measures how fast the jobs of a queue run here, and from that how many may be prefetched."""

MAX_PREFETCH = 400
_WEIGHT = 0.3


class Prefetch:
    """Two moving averages: how long a handler runs, and the gap between two finishes.

    The first alone would mistake handlers that block the loop for concurrent ones; the second alone
    would be misled by a burst of finishes. The smaller limit of the two applies.
    """

    __slots__ = ("_updated_at", "finished", "gap_s", "ran_s", "run_s")

    def __init__(self, now: float) -> None:
        self.finished = 0
        self.ran_s = 0.0
        self.run_s: float | None = None
        self.gap_s: float | None = None
        self._updated_at = now

    def update(self, now: float, *, backlog: bool) -> None:
        """Include the finishes since the last update.

        ``backlog``: jobs were waiting all the time, so that the gap measures this process and not
        the arrival of jobs.
        """
        finished = self.finished
        if finished:
            run_s, gap_s = self.ran_s / finished, (now - self._updated_at) / finished
            self.finished, self.ran_s = 0, 0.0
            self.run_s = run_s if self.run_s is None else _blend(self.run_s, run_s)
            if self.gap_s is None or gap_s < self.gap_s:
                self.gap_s = gap_s
            elif backlog:
                self.gap_s = _blend(self.gap_s, gap_s)
        elif backlog:
            return
        self._updated_at = now

    def reset(self) -> None:
        """The estimate was wrong: prefetch nothing until there is a new one."""
        self.run_s = self.gap_s = None

    def limit(self, span_s: float, slots: int) -> int:
        """How many jobs will have started within ``span_s``; 0 while that is not known, and for
        handlers that run longer than that."""
        run_s, gap_s = self.run_s, self.gap_s
        if run_s is None or gap_s is None or run_s > span_s:
            return 0
        by_run = span_s * slots / run_s if run_s > 0 else MAX_PREFETCH
        by_gap = span_s / gap_s if gap_s > 0 else MAX_PREFETCH
        return int(min(by_run, by_gap, MAX_PREFETCH))


def _blend(old: float, new: float) -> float:
    return old + (new - old) * _WEIGHT
