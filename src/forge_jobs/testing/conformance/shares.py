"""Slot shares: fair, granted only from released slots, and never beyond the total."""

import asyncio

import pytest

from forge_jobs.core.shares import Part, share_out
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.store.processes import SlotsInUse
from forge_jobs.store.queues import QueueChange
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .fixtures import SecondStore
from .worker import LEASE_S, Process, new_job

MOST = 256


async def _register(store: Store, clock: MovableClock, *names: str) -> dict[str, Process]:
    return {
        name: await Process.register(store, clock, host_id=name, lease_s=600.0) for name in names
    }


async def _slots(store: Store, queue: str = "q") -> dict[str, int]:
    """The slots that each living process may use."""
    return {
        record.host_id: record.shares[queue].slots
        for record in await store.processes.all()
        if queue in record.shares
    }


async def _held(store: Store, queue: str = "q") -> dict[str, int]:
    return {
        record.host_id: record.shares[queue].held
        for record in await store.processes.all()
        if queue in record.shares
    }


async def _release_slots(
    store: Store, worker: Process, *, running: int = 0, queue: str = "q"
) -> int:
    """The report of a process that has read its share and runs that many jobs."""
    [record] = [one for one in await store.processes.all() if one.key == worker.key]
    kept = SlotsInUse(queue, record.shares[queue].version, running)
    return await store.processes.release_slots(worker.key, [kept])


@pytest.mark.asyncio
class TestShares:
    """``ProcessStore.share`` and ``release_slots``."""

    async def test_a_lone_process_gets_everything(self, store: Store, clock: MovableClock) -> None:
        await store.queues.ensure("q", slots=10)
        await _register(store, clock, "a")
        assert await _slots(store) == {}
        assert await store.processes.share(max_slots=MOST) == 1
        assert (await _slots(store), await _held(store)) == ({"a": 10}, {"a": 10})

    async def test_ten_over_three_is_four_three_three(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        await _register(store, clock, "b", "a", "c")
        assert await store.processes.share(max_slots=MOST) == 3
        assert await _slots(store) == {"a": 4, "b": 3, "c": 3}

    async def test_fewer_slots_than_processes(self, store: Store, clock: MovableClock) -> None:
        await store.queues.ensure("q", slots=2)
        await _register(store, clock, "a", "b", "c")
        await store.processes.share(max_slots=MOST)
        assert await _slots(store) == {"a": 1, "b": 1}
        assert await store.processes.share(max_slots=MOST) == 0, "nobody takes turns"

    async def test_L9_only_changes_are_written(self, store: Store, clock: MovableClock) -> None:
        await store.queues.ensure("q", slots=10)
        workers = await _register(store, clock, "a", "b")
        await store.processes.share(max_slots=MOST)
        before = (await store.processes.control(workers["a"].key)).version
        shares = [record.shares for record in await store.processes.all()]
        for _ in range(3):
            assert await store.processes.share(max_slots=MOST) == 0
        assert (await store.processes.control(workers["a"].key)).version == before
        assert [record.shares for record in await store.processes.all()] == shares
        await store.queues.change("q", QueueChange(slots=11))
        assert await store.processes.share(max_slots=MOST) == 1
        assert (await store.processes.control(workers["a"].key)).version > before

    async def test_M6_a_new_process_gets_only_what_others_released(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        workers = await _register(store, clock, "a")
        await store.processes.share(max_slots=MOST)
        workers |= await _register(store, clock, "b")
        assert await store.processes.share(max_slots=MOST) == 1
        assert await _slots(store) == {"a": 5}
        assert await _held(store) == {"a": 10}
        assert await _release_slots(store, workers["a"], running=8) == 2
        await store.processes.share(max_slots=MOST)
        assert await _slots(store) == {"a": 5, "b": 2}
        assert await _release_slots(store, workers["a"], running=3) == 3
        assert await _release_slots(store, workers["a"], running=3) == 0
        await store.processes.share(max_slots=MOST)
        assert (await _slots(store), await _held(store)) == ({"a": 5, "b": 5},) * 2

    async def test_a_report_about_an_older_share_is_ignored(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        workers = await _register(store, clock, "a")
        a = workers["a"]
        await store.processes.share(max_slots=MOST)
        await store.queues.change("q", QueueChange(slots=2))
        await store.processes.share(max_slots=MOST)
        [record] = await store.processes.all()
        late = SlotsInUse("q", record.shares["q"].version, 0)
        await store.queues.change("q", QueueChange(slots=6))
        await store.processes.share(max_slots=MOST)
        await store.queues.change("q", QueueChange(slots=2))
        await store.processes.share(max_slots=MOST)
        assert await store.processes.release_slots(a.key, [late]) == 0
        assert await _held(store) == {"a": 10}
        assert await _release_slots(store, a, running=1) == 8
        assert await _held(store) == {"a": 2}

    async def test_release_slots_never_raises_what_is_held(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=4)
        workers = await _register(store, clock, "a")
        await store.processes.share(max_slots=MOST)
        assert await _release_slots(store, workers["a"], running=99) == 0
        assert await _held(store) == {"a": 4}
        assert await store.processes.release_slots(4711, [SlotsInUse("q", 1, 0)]) == 0
        assert (
            await store.processes.release_slots(workers["a"].key, [SlotsInUse("other", 1, 0)]) == 0
        )
        assert await store.processes.release_slots(workers["a"].key, []) == 0

    async def test_fewer_slots_apply_at_once_and_are_free_when_released(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=9)
        workers = await _register(store, clock, "a", "b", "c")
        await store.processes.share(max_slots=MOST)
        await store.queues.change("q", QueueChange(slots=3))
        assert await store.processes.share(max_slots=MOST) == 3
        assert await _slots(store) == {"a": 1, "b": 1, "c": 1}
        assert sum((await _held(store)).values()) == 9
        for worker in workers.values():
            await _release_slots(store, worker)
        assert sum((await _held(store)).values()) == 3

    async def test_a_process_that_leaves_leaves_its_share(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        workers = await _register(store, clock, "a", "b")
        await store.processes.share(max_slots=MOST)
        await store.processes.deregister(workers["a"].key)
        assert await store.processes.share(max_slots=MOST) == 1
        assert await _slots(store) == {"b": 10}

    async def test_a_quiet_process_keeps_what_still_runs(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        workers = await _register(store, clock, "a", "b")
        await store.processes.share(max_slots=MOST)
        await store.processes.quiet("a", quiet=True)
        await store.processes.share(max_slots=MOST)
        assert await _slots(store) == {"a": 0, "b": 5}
        await _release_slots(store, workers["a"], running=2)
        await store.processes.share(max_slots=MOST)
        assert await _slots(store) == {"a": 0, "b": 8}

    async def test_a_dead_process_holds_until_its_jobs_are_taken(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        await store.jobs.enqueue([new_job() for _ in range(3)])
        dying = await Process.register(store, clock, host_id="a", lease_s=LEASE_S)
        await Process.register(store, clock, host_id="b", lease_s=600.0)
        await store.processes.share(max_slots=MOST)
        await dying.claim(free=3)
        clock.advance(LEASE_S + 1)
        await store.processes.share(max_slots=MOST)
        assert await _slots(store) == {"b": 5}, "nobody has declared it dead"
        await store.jobs.reap(crash_note="gone", limit=2)
        await store.processes.share(max_slots=MOST)
        assert await _slots(store) == {"b": 5}, "one of its jobs is still running"
        await store.jobs.reap(crash_note="gone", limit=2)
        assert await store.processes.share(max_slots=MOST) == 1
        assert await _slots(store) == {"b": 10}

    async def test_a_late_heartbeat_keeps_the_share(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        slow = await Process.register(store, clock, host_id="a", lease_s=LEASE_S)
        await Process.register(store, clock, host_id="b", lease_s=600.0)
        await store.processes.share(max_slots=MOST)
        clock.advance(LEASE_S + 1)
        await store.processes.share(max_slots=MOST)
        assert (await slow.heartbeat()).alive
        await store.processes.share(max_slots=MOST)
        assert (await _slots(store), await _held(store)) == ({"a": 5, "b": 5},) * 2

    async def test_a_replaced_process_makes_room_for_its_successor(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=10)
        await _register(store, clock, "a")
        await store.processes.share(max_slots=MOST)
        await Process.register(store, clock, host_id="b", lease_s=600.0, replaces="a")
        await store.processes.share(max_slots=MOST)
        assert await _slots(store) == {"b": 10}

    async def test_only_processes_that_declared_a_queue_share_it(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.queues.ensure("mail", slots=7)
        await store.queues.ensure("video.slow-2", slots=3)
        await Process.register(store, clock, host_id="a", queues=("mail", "video.slow-2"))
        await Process.register(store, clock, host_id="b", queues=("mail", "undeclared"))
        await store.processes.share(max_slots=MOST)
        assert await _slots(store, "mail") == {"a": 4, "b": 3}
        assert await _slots(store, "video.slow-2") == {"a": 3}
        assert await _slots(store, "undeclared") == {}
        await store.queues.forget("mail")
        assert await store.processes.share(max_slots=MOST) == 0
        assert await _slots(store, "mail") == {"a": 4, "b": 3}, "stays as it is"

    async def test_A25_one_process_has_a_bound_the_cluster_has_none(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.queues.ensure("q", slots=1_000)
        await _register(store, clock, "a", "b", "c")
        await store.processes.share(max_slots=MOST)
        assert await _slots(store) == {"a": 256, "b": 256, "c": 256}
        await _register(store, clock, "d")
        await store.processes.share(max_slots=MOST)
        assert await _slots(store) == {"a": 250, "b": 250, "c": 250, "d": 232}

    async def test_many_at_once_share_out_as_one_would(
        self, store: Store, clock: MovableClock, second_store: SecondStore | None
    ) -> None:
        other = store if second_store is None else second_store(store)
        await other.open()
        try:
            await store.queues.ensure("q", slots=10)
            await store.queues.ensure("r", slots=5)
            for n in range(4):
                await Process.register(store, clock, host_id=f"h{n}", queues=("q", "r"))
            counts = await asyncio.gather(
                *(one.processes.share(max_slots=MOST) for one in (store, other) * 4)
            )
            assert sum(counts) == 8
            assert await _slots(other) == {"h0": 3, "h1": 3, "h2": 2, "h3": 2}
            assert await _slots(other, "r") == {"h0": 2, "h1": 1, "h2": 1, "h3": 1}
        finally:
            if other is not store:
                await other.close()

    async def test_any_order_of_events_follows_the_rule(
        self, store: Store, clock: MovableClock
    ) -> None:
        dice = SeededEntropy(7)
        await store.queues.ensure("q", slots=8)
        workers: dict[str, Process] = {}
        for n in range(60):
            total = await _random_event(store, clock, workers, dice, n)
            records = await store.processes.all()
            before = [
                Part(one.key, one.host_id, not one.quiet, share.slots, share.held)
                if (share := one.shares.get("q")) is not None
                else Part(one.key, one.host_id, not one.quiet)
                for one in records
            ]
            expected = {part.process: part for part in share_out(total, before, max_slots=6)}
            assert await store.processes.share(max_slots=6) == len(expected)
            after = await store.processes.all()
            for part, record in zip(before, after, strict=True):
                wanted = expected.get(part.process, part)
                share = record.shares.get("q")
                found = (0, 0) if share is None else (share.slots, share.held)
                assert found == (wanted.slots, wanted.held)
            held = sum((await _held(store)).values())
            assert held <= max(total, sum(part.held for part in before))


async def _random_event(
    store: Store, clock: MovableClock, workers: dict[str, Process], dice: SeededEntropy, n: int
) -> int:
    """Apply one random event; the total afterwards."""
    name = sorted(workers)[_below(dice, len(workers))] if workers else None
    match _below(dice, 6):
        case 0 | 1 if len(workers) < 6:
            fresh = f"h{_below(dice, 90):02}-{n}"
            workers |= await _register(store, clock, fresh)
        case 2 if name is not None:
            await store.processes.deregister(workers.pop(name).key)
        case 3 if name is not None:
            await store.processes.quiet(name, quiet=dice.roll() < 0.5)
        case 4:
            await store.queues.change("q", QueueChange(slots=_below(dice, 30)))
        case _ if name is not None and name in await _slots(store):
            await _release_slots(store, workers[name], running=_below(dice, 8))
        case _:
            pass
    config = await store.queues.get("q")
    assert config is not None
    return config.slots


def _below(dice: SeededEntropy, end: int) -> int:
    return int(dice.roll() * end)
