"""Who coordinates: one named lease in the store. It only saves work, nothing depends on it."""

from collections.abc import Callable

from forge_jobs.kit.clock import Clock
from forge_jobs.store.processes import ProcessStore

LEAD = "coordinator"
LEAD_TTL_S = 15.0
_RENEWALS = 3


class Leadership:
    """Takes and renews the coordinator's lease when somebody asks whether we hold it."""

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
        self._asked_at: float | None = None
        self._held_by: int | None = None

    async def is_leader(self) -> bool:
        """Whether this process coordinates; asks the store at most a few times per lease."""
        now, owner = self._mono(), self._owner()
        fresh = self._asked_at is not None and now - self._asked_at < self._ttl_s / _RENEWALS
        if not fresh or (self._held_by is not None and self._held_by != owner):
            self._held_by = None
            held = await self._processes.lead(LEAD, owner, ttl_s=self._ttl_s)
            self._asked_at = now
            self._held_by = owner if held else None
        return self._held_by is not None

    async def give_up(self) -> None:
        """Let the next one lead at once."""
        if self._held_by is not None:
            held_by, self._held_by = self._held_by, None
            await self._processes.release_lead(LEAD, held_by)
