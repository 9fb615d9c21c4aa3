"""Follows what operators set and what was shared out: the slots of each queue here, and its pause.

Slots are only used while the store holds them for this process (``core.shares``): a share that
grew is used at once; one that shrank is followed first and given up afterwards, job by job.
"""

import asyncio
from collections.abc import Callable, Mapping

from forge_jobs.config import EngineSettings
from forge_jobs.core.retry import Backoff
from forge_jobs.engine.claiming.local_queue import LocalQueue
from forge_jobs.engine.running.in_flight import InFlightJobs
from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.processes import ProcessRecord, Share, SlotsInUse
from forge_jobs.store.queues import QueueConfig
from forge_jobs.store.store import Store

_LOOK_S = 1.0
# A newcomer waits for what others give up, and may not yet hear that they did.
_YOUNG_LOOKS = 10
_YOUNG_LOOK_S = 0.2
_NOTHING = Share(0, 0, 0)


class SlotSync:
    """A service of every process; ``look_soon`` does not wait for its turn.

    Fewer slots or a pause stop new starts; running jobs finish, claimed ones go back at once. A
    queue whose settings are gone or cannot be read stays as it is.
    """

    name = "supervisor"
    runs_on = RunsOn.EVERY_PROCESS

    def __init__(
        self,
        floor: InFlightJobs,
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
        # One look at a time: a slow one must not bring back slots that a later one gave up.
        self._turn = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        self._again = False
        self._closed = False
        self._looks = 0
        self.quiet = False

    async def tick(self) -> Next:
        """Look once."""
        self._looks += 1
        await self.look()
        return Next.after(_LOOK_S if self._looks > _YOUNG_LOOKS else _YOUNG_LOOK_S)

    def look_soon(self) -> None:
        """Share out and look now, beside the regular rounds."""
        if self._closed:
            return
        if self._looking is not None and not self._looking.done():
            self._again = True
            return
        self._looking = asyncio.get_running_loop().create_task(self._look_now())

    async def share(self) -> int:
        """Share the slots of the cluster out; usually nothing changes."""
        return await self._store.processes.share(max_slots=self._settings.max_slots)

    async def look(self) -> None:
        """Read queues and processes, set the lanes accordingly, and give up what is not used."""
        async with self._turn:
            configs = {config.name: config for config in await self._store.queues.all()}
            mine = await self._mine()
            if mine is not None and self._lacks(configs, mine) and await self.share():
                mine = await self._mine()
            # A process that was declared dead while this look waited for the store has another
            # name by now: what its former life was granted is shared out anew.
            if mine is None or mine.host_id != self._host_id():
                return
            self.quiet = mine.quiet
            if self._follow(configs, mine):
                self._on_change()
            kept = self._kept(mine)
            if kept and await self._store.processes.release_slots(mine.key, kept):
                await self.share()

    async def _mine(self) -> ProcessRecord | None:
        """This process as the store sees it; None when it does not look alive there."""
        processes = await self._store.processes.all()
        host_id = self._host_id()
        return next((record for record in processes if record.host_id == host_id), None)

    def _lacks(self, configs: Mapping[str, QueueConfig], mine: ProcessRecord) -> bool:
        """Whether it has nothing of a queue that has slots: nobody may have noticed it yet."""
        return not mine.quiet and any(
            (config := configs.get(name)) is not None
            and config.slots > 0
            and not mine.shares.get(name, _NOTHING).slots
            for name in self._floor.lanes
        )

    def forget(self) -> None:
        """The process was declared dead: its slots are no longer its own."""
        for lane in self._floor.lanes.values():
            lane.retarget(0)

    def close(self) -> None:
        """No more looks."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()

    def _follow(self, configs: Mapping[str, QueueConfig], mine: ProcessRecord) -> bool:
        changed = False
        for name, lane in self._floor.lanes.items():
            config = configs.get(name)
            if config is not None:
                changed = self._set(lane, config, mine.shares.get(name, _NOTHING)) or changed
        return changed

    def _set(self, lane: LocalQueue, config: QueueConfig, share: Share) -> bool:
        lane.backoff = (
            Backoff(base_s=config.backoff_base_s, max_s=config.backoff_max_s)
            if config.backoff_enabled
            else self._settings.backoff
        )
        is_open = self._floor.is_open and not config.paused and not self.quiet
        slots = share.slots if is_open else 0
        if slots == lane.target:
            return False
        lane.retarget(slots)
        lane.hungry = True
        return True

    def _kept(self, mine: ProcessRecord) -> list[SlotsInUse]:
        """What still runs in queues of which more is held than may be used."""
        return [
            SlotsInUse(name, share.version, lane.busy)
            for name, lane in self._floor.lanes.items()
            if (share := mine.shares.get(name, _NOTHING)).held > max(share.slots, lane.busy)
        ]

    async def _look_now(self) -> None:
        while True:
            self._again = False
            try:
                await self.share()
                await self.look()
            except Exception:
                return  # the regular rounds log their errors and come again
            if not self._again:
                return
