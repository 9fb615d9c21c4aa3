"""Applies queue settings and slot shares to the local queues: their slots, and their pause.

A process uses only slots that the store holds for it (``core.shares``): a share that grew is used
at once; one that shrank is applied first, and its slots are given up as jobs finish.
"""

import asyncio
from collections.abc import Callable, Mapping

from forge_jobs.config import EngineSettings
from forge_jobs.core.retry import Backoff
from forge_jobs.engine.claiming.local_queue import LocalQueue
from forge_jobs.engine.claiming.local_queues import LocalQueues
from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.processes import ProcessRecord, Share, SlotsInUse
from forge_jobs.store.queues import QueueConfig
from forge_jobs.store.store import Store

_INTERVAL_S = 1.0
# A new process waits for what others give up, and may not get notifications of it yet.
_EARLY_SYNCS = 10
_EARLY_INTERVAL_S = 0.2
_NOTHING = Share(0, 0, 0)


class SlotSync:
    """A service of every process; ``sync_soon`` does it between two ticks.

    Fewer slots or a pause prevent new starts; running jobs finish, ready ones are released at once.
    A queue whose settings are gone or cannot be read stays as it is.
    """

    name = "slot_sync"
    runs_on = RunsOn.EVERY_PROCESS

    def __init__(
        self,
        local_queues: LocalQueues,
        store: Store,
        *,
        settings: EngineSettings,
        host_id: Callable[[], str],
        on_change: Callable[[], None],
    ) -> None:
        self._local_queues = local_queues
        self._store = store
        self._settings = settings
        self._host_id = host_id
        self._on_change = on_change
        # One at a time: a slow sync must not set slots that a later one gave up.
        self._lock = asyncio.Lock()
        self._syncing: asyncio.Task[None] | None = None
        self._again = False
        self._closed = False
        self._syncs = 0
        self.quiet = False

    async def tick(self) -> Next:
        """Sync once."""
        self._syncs += 1
        await self.sync()
        return Next.after(_INTERVAL_S if self._syncs > _EARLY_SYNCS else _EARLY_INTERVAL_S)

    def sync_soon(self) -> None:
        """Divide the slots and sync now, between the regular ticks."""
        if self._closed:
            return
        if self._syncing is not None and not self._syncing.done():
            self._again = True
            return
        self._syncing = asyncio.get_running_loop().create_task(self._sync_now())

    async def share(self) -> int:
        """Divide the slots of the cluster; usually nothing changes."""
        return await self._store.processes.share(max_slots=self._settings.max_slots)

    async def sync(self) -> None:
        """Read queues and processes, set the local queues, and give up slots that are not used."""
        async with self._lock:
            configs = {config.name: config for config in await self._store.queues.all()}
            record = await self._own_record()
            if record is not None and self._lacks_share(configs, record) and await self.share():
                record = await self._own_record()
            # If the process was declared dead while this sync waited for the store, it has another
            # host_id now, and the shares of the former registration are no longer its own.
            if record is None or record.host_id != self._host_id():
                return
            self.quiet = record.quiet
            if self._apply(configs, record):
                self._on_change()
            in_use = self._slots_to_give_up(record)
            if in_use and await self._store.processes.release_slots(record.key, in_use):
                await self.share()

    async def _own_record(self) -> ProcessRecord | None:
        """This process as the store has it; None when it does not count as alive there."""
        processes = await self._store.processes.all()
        host_id = self._host_id()
        return next((one for one in processes if one.host_id == host_id), None)

    def _lacks_share(self, configs: Mapping[str, QueueConfig], record: ProcessRecord) -> bool:
        """Whether it has no share of a queue that has slots: no rebalance may have seen it yet."""
        return not record.quiet and any(
            (config := configs.get(name)) is not None
            and config.slots > 0
            and not record.shares.get(name, _NOTHING).slots
            for name in self._local_queues.by_name
        )

    def drop_slots(self) -> None:
        """Set all slots to 0: the process was declared dead and holds none any more."""
        for local_queue in self._local_queues.by_name.values():
            local_queue.set_slots(0)

    def close(self) -> None:
        """Stop syncing."""
        self._closed = True
        if self._syncing is not None:
            self._syncing.cancel()

    def _apply(self, configs: Mapping[str, QueueConfig], record: ProcessRecord) -> bool:
        changed = False
        for name, local_queue in self._local_queues.by_name.items():
            config = configs.get(name)
            if config is not None:
                changed = (
                    self._apply_to(local_queue, config, record.shares.get(name, _NOTHING))
                    or changed
                )
        return changed

    def _apply_to(self, local_queue: LocalQueue, config: QueueConfig, share: Share) -> bool:
        local_queue.backoff = (
            Backoff(base_s=config.backoff_base_s, max_s=config.backoff_max_s)
            if config.backoff_enabled
            else self._settings.backoff
        )
        is_open = self._local_queues.is_open and not config.paused and not self.quiet
        slots = share.slots if is_open else 0
        if slots == local_queue.slots:
            return False
        local_queue.set_slots(slots)
        local_queue.expects_jobs = True
        return True

    def _slots_to_give_up(self, record: ProcessRecord) -> list[SlotsInUse]:
        """The slots in use of queues of which the process holds more than its share."""
        return [
            SlotsInUse(name, share.version, local_queue.busy)
            for name, local_queue in self._local_queues.by_name.items()
            if (share := record.shares.get(name, _NOTHING)).held
            > max(share.slots, local_queue.busy)
        ]

    async def _sync_now(self) -> None:
        while True:
            self._again = False
            try:
                await self.share()
                await self.sync()
            except Exception:
                return  # the regular ticks log their errors and try again
            if not self._again:
                return
