"""What a process was granted before it was declared dead is not its own any more."""

import asyncio
import dataclasses
from typing import Any

from forge_jobs import rebalance_once
from forge_jobs.store.processes import NewProcess
from forge_jobs.store.store import Store
from tests.engine.rig import FAST, Rig, until

_SYNC = "the look"


class SlowAnswers:
    """A real store with a slow reply to the ``share`` of one sync; later syncs wait too."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.capabilities = inner.capabilities
        self.processes, self.queues = _Processes(inner.processes), _Queues(inner.queues)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Processes:
    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.shared, self.answer = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def share(self, *, max_slots: int) -> int:
        changed = await self._inner.share(max_slots=max_slots)
        if _is_the_sync():
            self.shared.set()
            await self.answer.wait()
        return changed


class _Queues:
    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.answer = asyncio.Event()
        self.answer.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def all(self) -> Any:
        if not _is_the_sync():
            await self.answer.wait()
        return await self._inner.all()


def _is_the_sync() -> bool:
    task = asyncio.current_task()
    return task is not None and task.get_name() == _SYNC


async def _join(store: Store, host_id: str, queue: str, *, replaces: str | None = None) -> None:
    member = NewProcess(
        host_id=host_id, label=host_id, queues=(queue,), pid=1, hostname="h", lease_s=600
    )
    await store.processes.register(member, replaces=replaces)
    await rebalance_once(store)


async def test_r13_a_sync_of_a_former_registration_sets_no_slots(store: Store) -> None:
    """One slot, which another process holds since this one was declared dead: a sync that waited
    for the store meanwhile still has the former share, and must not use it."""
    slow = SlowAnswers(store)
    rig = Rig(slow)  # type: ignore[arg-type]
    await store.queues.ensure("other", slots=1)
    # It holds the one slot of "other", so that every sync of the worker divides the slots again.
    await _join(store, "00-first", "other")
    settings = dataclasses.replace(FAST, lease_s=600.0, heartbeat_s=0.05)
    async with rig.working({"q": 1, "other": 1}, settings=settings) as handle:
        local_queue = handle._process.parts.local_queues.by_name["q"]
        await until(lambda: local_queue.slots == 1)
        former = handle.host_id
        sync = asyncio.create_task(handle._process._slot_sync.sync(), name=_SYNC)
        await asyncio.wait_for(slow.processes.shared.wait(), 60)
        await _join(store, "00-heir", "q", replaces=former)

        async def lives_anew() -> bool:
            living = {process.host_id for process in await store.processes.all()}
            return handle.host_id != former and handle.host_id in living

        await until(lives_anew)
        await rebalance_once(store)
        held = {seen.host_id: seen.shares.get("q") for seen in await store.processes.all()}
        heirs = held["00-heir"]
        assert heirs is not None
        assert heirs.held == 1
        slow.queues.answer.clear()
        slow.processes.answer.set()
        await sync
        target = local_queue.slots
        slow.queues.answer.set()
        assert target == 0
