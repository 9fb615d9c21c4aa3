"""How fast a queue's jobs go through this process, and how many may therefore be claimed ahead."""

MAX_AHEAD = 400
_WEIGHT = 0.3


class Prefetch:
    """Two moving averages: how long a handler runs, and the gap between two endings.

    The first alone would mistake handlers that block the loop for ones that run side by side; the
    second alone would be fooled by a burst of endings. The smaller answer of the two counts.
    """

    __slots__ = ("_looked_at", "ended", "gap_s", "ran_s", "run_s")

    def __init__(self, now: float) -> None:
        self.ended = 0
        self.ran_s = 0.0
        self.run_s: float | None = None
        self.gap_s: float | None = None
        self._looked_at = now

    def look(self, now: float, *, backlog: bool) -> None:
        """Take the endings since the last look into account.

        ``backlog``: there was work all the time, so that the gap is ours and not the queue's.
        """
        ended = self.ended
        if ended:
            run_s, gap_s = self.ran_s / ended, (now - self._looked_at) / ended
            self.ended, self.ran_s = 0, 0.0
            self.run_s = run_s if self.run_s is None else _blend(self.run_s, run_s)
            if self.gap_s is None or gap_s < self.gap_s:
                self.gap_s = gap_s
            elif backlog:
                self.gap_s = _blend(self.gap_s, gap_s)
        elif backlog:
            return
        self._looked_at = now

    def forget(self) -> None:
        """The forecast was wrong: claim nothing ahead until there is a new one."""
        self.run_s = self.gap_s = None

    def ahead(self, span_s: float, slots: int) -> int:
        """How many jobs are certainly started within ``span_s``; 0 while that is not known, and
        for handlers that run longer than that."""
        run_s, gap_s = self.run_s, self.gap_s
        if run_s is None or gap_s is None or run_s > span_s:
            return 0
        by_run = span_s * slots / run_s if run_s > 0 else MAX_AHEAD
        by_gap = span_s / gap_s if gap_s > 0 else MAX_AHEAD
        return int(min(by_run, by_gap, MAX_AHEAD))


def _blend(old: float, new: float) -> float:
    return old + (new - old) * _WEIGHT
