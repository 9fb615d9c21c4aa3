"""Elects one process as coordinator by a named lease in the store. It only saves work."""

from collections.abc import Callable

from forge_jobs.kit.clock import Clock
from forge_jobs.store.processes import ProcessStore

LEAD = "coordinator"
LEAD_TTL_S = 15.0
_RENEWALS = 3


class Leadership:
    """Takes and renews the coordinator's lease when ``is_leader`` is called.

    Nothing depends on it for correctness: every service may run in several processes at once.
    """

    def __init__(
        self,
        processes: ProcessStore,
        owner: Callable[[], int],
        *,
        clock: Clock,
        ttl_s: float = LEAD_TTL_S,
    ) -> None:
        self._processes = processes
        self._owner = owner
        self._mono = clock.mono
        self._ttl_s = ttl_s
        self._checked_at: float | None = None
        self._held_by: int | None = None

    async def is_leader(self) -> bool:
        """Whether this process coordinates; calls the store at most a few times per lease."""
        now, owner = self._mono(), self._owner()
        fresh = self._checked_at is not None and now - self._checked_at < self._ttl_s / _RENEWALS
        if not fresh or (self._held_by is not None and self._held_by != owner):
            self._held_by = None
            held = await self._processes.lead(LEAD, owner, ttl_s=self._ttl_s)
            self._checked_at = now
            self._held_by = owner if held else None
        return self._held_by is not None

    async def release(self) -> None:
        """Release the lease, so that another process can lead at once."""
        if self._held_by is not None:
            held_by, self._held_by = self._held_by, None
            await self._processes.release_lead(LEAD, held_by)
