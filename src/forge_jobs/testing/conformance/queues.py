"""The queue contract: settings of queues are kept, bad values are refused; published kinds."""

import asyncio
import math

import pytest

from forge_jobs.core.errors import BadName, BadOption, NotFound
from forge_jobs.core.throttle import Gate
from forge_jobs.store.queues import QueueChange, QueueConfig
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import Process, all_jobs, enqueue

BAD_CHANGES = {
    "slots below zero": QueueChange(slots=-1),
    "slots above the limit": QueueChange(slots=100_001),
    "retain_done_s below zero": QueueChange(retain_done_s=-1.0),
    "retain_dead_s below zero": QueueChange(retain_dead_s=-0.001),
    "retain_cancelled_s below zero": QueueChange(retain_cancelled_s=-5.0),
    "backoff_base_s below zero": QueueChange(backoff_base_s=-1.0),
    "backoff_max_s below zero": QueueChange(backoff_base_s=0.0, backoff_max_s=-1.0),
    "base above the stored max": QueueChange(backoff_base_s=3_601.0),
    "max below the stored base": QueueChange(backoff_max_s=14.0),
    "not a number": QueueChange(retain_done_s=math.nan),
}


@pytest.mark.asyncio
class TestQueues:
    """Settings."""

    async def test_ensure_creates_with_defaults(self, store: Store, clock: MovableClock) -> None:
        config = await store.queues.ensure("mail", slots=20)
        assert config == QueueConfig(name="mail", slots=20, updated_at=clock.now())
        assert config.gate == Gate()
        assert await store.queues.get("mail") == config

    @pytest.mark.parametrize("name", ["", "a,b", "a b", "é", "q" * 128])
    async def test_p53_a_bad_name_is_refused(self, store: Store, name: str) -> None:
        with pytest.raises(BadName, match="queue"):
            await store.queues.ensure(name, slots=1)
        assert await store.queues.all() == []

    async def test_A25_ensure_never_overwrites(self, store: Store) -> None:
        await store.queues.ensure("mail", slots=20)
        await store.queues.change("mail", QueueChange(slots=100_000, paused=True))
        again = await store.queues.ensure("mail", slots=5)
        assert (again.slots, again.paused) == (100_000, True)

    async def test_racing_ensures_agree(self, store: Store) -> None:
        configs = await asyncio.gather(*(store.queues.ensure("mail", slots=n) for n in range(1, 9)))
        assert len({config.slots for config in configs}) == 1

    async def test_all_are_listed_by_name(self, store: Store) -> None:
        for name in ("b", "a.x", "a", "C", "a-1"):
            await store.queues.ensure(name, slots=1)
        names = [config.name for config in await store.queues.all()]
        assert names == sorted(names)
        assert set(names) == {"b", "a.x", "a", "C", "a-1"}

    async def test_a_change_leaves_the_rest(self, store: Store, clock: MovableClock) -> None:
        await store.queues.ensure("q", slots=20)
        clock.advance(5)
        changed = await store.queues.change("q", QueueChange(retain_done_s=None, slots=0))
        assert changed == QueueConfig(name="q", slots=0, retain_done_s=None, updated_at=clock.now())
        everything_else = QueueChange(
            paused=True,
            retain_dead_s=0.0,
            retain_cancelled_s=1.5,
            backoff_enabled=True,
            backoff_base_s=2.0,
            backoff_max_s=2.0,
        )
        changed = await store.queues.change("q", everything_else)
        assert changed == await store.queues.get("q")
        assert (changed.slots, changed.retain_done_s, changed.paused) == (0, None, True)
        assert (changed.retain_dead_s, changed.retain_cancelled_s) == (0.0, 1.5)
        assert (changed.backoff_enabled, changed.backoff_base_s) == (True, 2.0)

    async def test_a_bad_value_refuses_the_whole_change(self, store: Store) -> None:
        before = await store.queues.ensure("q", slots=3)
        for name, change in BAD_CHANGES.items():
            with pytest.raises(BadOption):
                await store.queues.change("q", change)
            assert await store.queues.get("q") == before, name

    async def test_unknown_queues(self, store: Store) -> None:
        assert await store.queues.get("none") is None
        with pytest.raises(NotFound):
            await store.queues.change("none", QueueChange(slots=1))
        with pytest.raises(NotFound):
            await store.queues.forget("none")
        assert await store.queues.all() == []

    async def test_forgetting_a_queue_leaves_its_jobs(self, store: Store, worker: Process) -> None:
        await store.queues.ensure("q", slots=3)
        await store.queues.change("q", QueueChange(paused=True))
        await enqueue(store)
        await store.queues.forget("q")
        assert await store.queues.get("q") is None
        assert len(await all_jobs(store)) == 1
        assert len(await worker.claim()) == 1
        assert (await store.queues.ensure("q", slots=7)).slots == 7


@pytest.mark.asyncio
class TestKinds:
    """Which queue a kind belongs to."""

    async def test_the_last_publish_wins(self, store: Store) -> None:
        assert await store.queues.kinds() == {}
        await store.queues.publish({"send": "mail", "encode": "video"})
        await store.queues.publish({"send": "mail-2"})
        await store.queues.publish({})
        assert await store.queues.kinds() == {"send": "mail-2", "encode": "video"}
