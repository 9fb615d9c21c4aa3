"""Where to begin looking in a queue whose line has a long dead tail.

A claimed job leaves a dead entry at the front of its queue's index. Vacuum removes those, but not
while some other session holds an old snapshot: then every claim would walk over all of them again.
As soon as two searches walk over suspiciously many, this process remembers how far it got in each
queue and priority and begins there. Jobs that appear below are found by a search from the front: at
once after this process put jobs back itself, soon after a search that found too few, and every two
seconds in any case.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from forge_jobs.core.job import ClaimedJob
from forge_jobs.kit.clock import Clock
from forge_jobs.store.jobs import Exchange, Want

WIDEN_S: Final = 2.0
SHORT_S: Final = 0.25
MANY: Final = 2_000
MANY_PER_JOB: Final = 4
_MAX_PRIORITIES: Final = 32

Position = tuple[int, int, int]


class ClaimWatermarks:
    """What this process knows about the fronts of its queues."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, dict[int, Position]] = {}
        self._looked_at = self._widen_at = 0.0
        self._armed = self._was_long = False

    def of(self, wants: Sequence[Want]) -> dict[str, list[Position]]:
        """Positions by queue, by rising priority; none while all is well, or to look again."""
        if not self._armed:
            return {}
        if self._clock.mono() >= self._widen_at:
            self._known.clear()
            return {}
        return {
            want.queue: sorted(known.values())
            for want in wants
            if (known := self._known.get(want.queue))
        }

    def forget(self, queues: Iterable[str]) -> None:
        """Jobs of these queues became pending, perhaps below what is known."""
        for queue in queues:
            self._known.pop(queue, None)

    def learn(self, request: Exchange, claims: Sequence[ClaimedJob], walked: int) -> None:
        """What a round told about them; ``walked``: over how many entries of the index it went."""
        if not request.want or any(want.kinds for want in request.want):
            # A search for some kinds walks over the others: it tells nothing about the front.
            return
        now = self._clock.mono()
        if not self._known:
            # This search began at the front: it shows how things stand.
            # The first one to walk over a tail that may go makes it short for the next.
            long = walked > MANY + MANY_PER_JOB * len(claims)
            self._armed, self._was_long = long and self._was_long, long
            self._looked_at, self._widen_at = now, now + WIDEN_S
        if not self._armed:
            return
        if len(claims) < sum(want.free + want.prefetch for want in request.want):
            self._widen_at = min(self._widen_at, self._looked_at + SHORT_S)
        for job in claims:
            known = self._known.setdefault(job.queue, {})
            if len(known) < _MAX_PRIORITIES or job.priority in known:
                position = (job.priority, job.run_at, job.key)
                known[job.priority] = max(position, known.get(job.priority, position))
