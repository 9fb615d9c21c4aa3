"""Claim watermarks: where a claim starts its search in a queue whose index has many dead entries.

A claimed job leaves a dead entry at the front of its queue's index. Vacuum removes these, but not
while another session holds an old snapshot; until then every claim would read all of them again.
When two searches in a row read suspiciously many entries, this process remembers how far it got in
each queue and priority and starts its searches there. Jobs that become pending below a watermark
are found by a search from the front: at once after this process itself made jobs pending, 0.25 s
after a search that found too few, and every two seconds in any case.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from forge_jobs.core.job import ClaimedJob
from forge_jobs.kit.clock import Clock
from forge_jobs.store.jobs import Exchange, Want

RESET_S: Final = 2.0
EARLY_RESET_S: Final = 0.25
LONG_SEARCH: Final = 2_000
LONG_SEARCH_PER_JOB: Final = 4
_MAX_PRIORITIES: Final = 32

Position = tuple[int, int, int]


class ClaimWatermarks:
    """The watermarks of one process, by queue and priority. Off until searches get long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watermarks: dict[str, dict[int, Position]] = {}
        self._searched_at = self._reset_at = 0.0
        self._active = self._last_was_long = False

    def positions(self, wants: Sequence[Want]) -> dict[str, list[Position]]:
        """Where to start, by queue, in order of priority; empty to search from the front."""
        if not self._active:
            return {}
        if self._clock.mono() >= self._reset_at:
            self._watermarks.clear()
            return {}
        return {
            want.queue: sorted(known.values())
            for want in wants
            if (known := self._watermarks.get(want.queue))
        }

    def forget(self, queues: Iterable[str]) -> None:
        """Search these queues from the front: jobs became pending, perhaps below a watermark."""
        for queue in queues:
            self._watermarks.pop(queue, None)

    def update(self, request: Exchange, claims: Sequence[ClaimedJob], walked: int) -> None:
        """Update from an exchange; ``walked``: how many index entries its search read."""
        if not request.want or any(want.kinds for want in request.want):
            # A search for some kinds also reads entries of other kinds: its length means nothing.
            return
        now = self._clock.mono()
        if not self._watermarks:
            # This search started at the front, so its length counts. One long search is not enough:
            # reading dead entries that no snapshot needs marks them, and the next search is short.
            long = walked > LONG_SEARCH + LONG_SEARCH_PER_JOB * len(claims)
            self._active, self._last_was_long = long and self._last_was_long, long
            self._searched_at, self._reset_at = now, now + RESET_S
        if not self._active:
            return
        if len(claims) < sum(want.free + want.prefetch for want in request.want):
            self._reset_at = min(self._reset_at, self._searched_at + EARLY_RESET_S)
        for job in claims:
            known = self._watermarks.setdefault(job.queue, {})
            if len(known) < _MAX_PRIORITIES or job.priority in known:
                position = (job.priority, job.run_at, job.key)
                known[job.priority] = max(position, known.get(job.priority, position))
