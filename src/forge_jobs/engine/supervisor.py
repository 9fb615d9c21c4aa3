"""Follows what operators set: how many slots each queue has here, and whether it is paused."""

import asyncio
from collections.abc import Callable

from forge_jobs.config import EngineSettings
from forge_jobs.core.retry import Backoff
from forge_jobs.kit.service import Next, Scope
from forge_jobs.store.bundle import Store
from forge_jobs.store.processes import ProcessRecord
from forge_jobs.store.queues import QueueConfig

from .floor import Floor
from .lane import Lane
from .shares import granted

_LOOK_S = 1.0


class Supervisor:
    """A service of every process; ``look_soon`` does not wait for its turn.

    Fewer slots or a pause stop new starts; running jobs finish, claimed ones go back at once. A
    queue whose settings are gone or cannot be read stays as it is.
    """

    name = "supervisor"
    scope = Scope.NODE

    def __init__(
        self,
        floor: Floor,
        store: Store,
        *,
        settings: EngineSettings,
        host_id: Callable[[], str],
        on_change: Callable[[], None],
    ) -> None:
        self._floor = floor
        self._store = store
        self._settings = settings
        self._host_id = host_id
        self._on_change = on_change
        self._looking: asyncio.Task[None] | None = None
        self._again = False
        self._closed = False
        self.quiet = False

    async def tick(self) -> Next:
        """Look once."""
        await self.look()
        return Next.after(_LOOK_S)

    def look_soon(self) -> None:
        """Look now, beside the regular rounds."""
        if self._closed:
            return
        if self._looking is not None and not self._looking.done():
            self._again = True
            return
        self._looking = asyncio.get_running_loop().create_task(self._look_now())

    async def look(self) -> None:
        """Read queues and processes, and set the lanes accordingly."""
        configs = {config.name: config for config in await self._store.queues.all()}
        processes = await self._store.processes.all()
        host_id = self._host_id()
        self.quiet = any(record.quiet for record in processes if record.host_id == host_id)
        changed = False
        for name, lane in self._floor.lanes.items():
            config = configs.get(name)
            if config is not None:
                changed = self._follow(lane, config, processes, host_id) or changed
        if changed:
            self._on_change()

    def close(self) -> None:
        """No more looks."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()

    def _follow(
        self, lane: Lane, config: QueueConfig, processes: list[ProcessRecord], host_id: str
    ) -> bool:
        lane.backoff = (
            Backoff(base_s=config.backoff_base_s, max_s=config.backoff_max_s)
            if config.backoff_enabled
            else self._settings.backoff
        )
        slots = 0
        if not config.paused and not self.quiet and self._floor.is_open:
            slots = granted(
                config.slots, lane.name, host_id, processes, most=self._settings.slots_most
            )
        if slots == lane.target:
            return False
        lane.retarget(slots)
        lane.hungry = True
        return True

    async def _look_now(self) -> None:
        while True:
            self._again = False
            try:
                await self.look()
            except Exception:
                return  # the regular rounds log their errors and come again
            if not self._again:
                return
