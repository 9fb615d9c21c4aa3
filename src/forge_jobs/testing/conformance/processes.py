"""The process contract: registrations, leases, control by operators, leaderships."""

import asyncio

import pytest

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import SECOND
from forge_jobs.core.kind_signature import KindSignature
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.store.processes import (
    HeartbeatReply,
    NewProcess,
    ProcessSignature,
    ProcessStats,
)
from forge_jobs.store.queues import QueueChange
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import LEASE_S, Process, enqueue


@pytest.mark.asyncio
class TestProcesses:
    """Registration, heartbeats, listing and control."""

    async def test_a_process_is_seen_as_it_registered(
        self, store: Store, clock: MovableClock
    ) -> None:
        worker = await Process.register(store, clock, queues=("mail", "vidéo"), lease_s=7.5)
        started = clock.now()
        clock.advance(2)
        stats = ProcessStats(
            running=3, slots={"mail": 4, "vidéo": 1}, memory_bytes=50_000_000, cores=1.5
        )
        assert await store.processes.heartbeat(worker.key, stats) == HeartbeatReply(
            True, clock.now()
        )
        [seen] = await store.processes.all()
        assert (seen.key, seen.host_id) == (worker.key, "host-1")
        assert (seen.label, seen.queues) == ("label of host-1", ("mail", "vidéo"))
        assert (seen.pid, seen.hostname, seen.version) == (4711, "box", "1.2.3")
        assert (seen.started_at, seen.beat_at) == (started, clock.now())
        assert (seen.lease_s, seen.quiet) == (7.5, False)
        assert (seen.running, dict(seen.slots)) == (3, {"mail": 4, "vidéo": 1})
        assert (seen.memory_bytes, seen.cores) == (50_000_000, 1.5)

    async def test_u4_signatures_are_those_of_living_processes_that_have_the_kind(
        self, store: Store, clock: MovableClock
    ) -> None:
        old = KindSignature(required=("to",), types="a1")
        new = KindSignature(required=("to",), optional=("cc", "größe"), extra=True, types="b2")
        keys: dict[str, int] = {}
        for name, signatures in {
            "old": {"send.mail:v-1": old, "other": old},
            "new": {"send.mail:v-1": new},
            "without": {"other": old},
            "quiet": {"send.mail:v-1": old},
            "gone": {"send.mail:v-1": old},
            "expired": {"send.mail:v-1": old},
        }.items():
            keys[name] = await store.processes.register(
                NewProcess(
                    host_id=name, label=name, queues=("mail", name), pid=1, hostname="box",
                    lease_s=5.0 if name == "expired" else 60.0, signatures=signatures,
                )
            )  # fmt: skip
        await store.processes.quiet("quiet", quiet=True)
        await store.processes.deregister(keys["gone"])
        clock.advance(10)
        assert await store.processes.signatures("send.mail:v-1") == [
            ProcessSignature(keys["old"], ("mail", "old"), old),
            ProcessSignature(keys["new"], ("mail", "new"), new),
            ProcessSignature(keys["quiet"], ("mail", "quiet"), old),
        ]
        assert await store.processes.signatures("nobody") == []
        assert await store.processes.signatures("x\"y'z") == []

    async def test_keys_are_never_reused(self, store: Store, clock: MovableClock) -> None:
        keys: list[int] = []
        for n in range(3):
            worker = await Process.register(store, clock, host_id=f"host-{n}")
            keys.append(worker.key)
            await store.processes.deregister(worker.key)
        assert keys == sorted(set(keys))

    async def test_L7_only_the_living_are_listed_by_host_id(
        self, store: Store, clock: MovableClock
    ) -> None:
        workers = {
            name: await Process.register(store, clock, host_id=name)
            for name in ("c", "a", "d", "b")
        }
        await store.processes.deregister(workers["d"].key)
        clock.advance(LEASE_S - 1)
        await workers["a"].heartbeat()
        await workers["c"].heartbeat()
        clock.advance(2)
        assert [seen.host_id for seen in await store.processes.all()] == ["a", "c"]

    async def test_a_lease_ends_exactly_when_it_ends(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        clock.advance(LEASE_S - 0.001)
        assert len(await store.processes.all()) == 1
        clock.advance(0.001)
        assert await store.processes.all() == []

    async def test_an_unknown_process_is_not_alive(self, store: Store, clock: MovableClock) -> None:
        assert await store.processes.heartbeat(999, ProcessStats()) == HeartbeatReply(
            False, clock.now()
        )
        control = await store.processes.control(999)
        assert (list(control.cancels), control.quiet) == ([], False)

    async def test_next_expiry_is_the_earliest_of_the_living(
        self, store: Store, clock: MovableClock
    ) -> None:
        assert await store.processes.next_expiry() is None
        await Process.register(store, clock, host_id="long", lease_s=60.0)
        short = await Process.register(store, clock, host_id="short", lease_s=5.0)
        assert await store.processes.next_expiry() == clock.now() + 5 * SECOND
        clock.advance(2)
        await short.heartbeat()
        assert await store.processes.next_expiry() == clock.now() + 5 * SECOND
        await store.processes.deregister(short.key)
        assert await store.processes.next_expiry() == clock.now() + 58 * SECOND

    async def test_a_process_is_asked_to_be_quiet(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2")
        before = await store.processes.control(worker.key)
        await store.processes.quiet(worker.host_id, quiet=True)
        after = await store.processes.control(worker.key)
        assert (before.quiet, after.quiet) == (False, True)
        assert before.version != after.version
        assert not (await store.processes.control(other.key)).quiet
        assert [seen.quiet for seen in await store.processes.all()] == [True, False]
        await store.processes.quiet(worker.host_id, quiet=False)
        assert not (await store.processes.control(worker.key)).quiet

    async def test_only_living_processes_can_be_quieted(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        with pytest.raises(NotFound):
            await store.processes.quiet("nobody", quiet=True)
        clock.advance(LEASE_S)
        with pytest.raises(NotFound):
            await store.processes.quiet(worker.host_id, quiet=True)

    async def test_the_control_version_rises_with_every_operator_action(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        await worker.claim_one()
        versions = [(await store.processes.control(worker.key)).version]
        chosen = Selection(ids=(answer.id,))
        actions = [
            lambda: store.queues.ensure("q", slots=3),
            lambda: store.queues.change("q", QueueChange(slots=5)),
            lambda: store.queues.change("q", QueueChange(paused=True)),
            lambda: store.queues.open_gate("q"),
            lambda: store.processes.quiet(worker.host_id, quiet=True),
            lambda: store.jobs.act(BulkAction.CANCEL, chosen, reason="x", limit=1),
            lambda: store.queues.forget("q"),
        ]
        for action in actions:
            await action()
            versions.append((await store.processes.control(worker.key)).version)
        assert versions == sorted(set(versions))

    async def test_work_does_not_change_the_control_version(
        self, store: Store, worker: Process
    ) -> None:
        before = (await store.processes.control(worker.key)).version
        await enqueue(store)
        job = await worker.claim_one()
        await worker.send_finishes(worker.build_finish(job))
        await worker.heartbeat()
        assert (await store.processes.control(worker.key)).version == before


@pytest.mark.asyncio
class TestLeadership:
    """Leaderships: one holder at a time."""

    async def test_the_first_takes_it_and_renews_it(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2", lease_s=600.0)
        lead = store.processes.lead
        assert await lead("cron", worker.key, ttl_s=15)
        assert not await lead("cron", other.key, ttl_s=15)
        await worker.advance(10)
        assert await lead("cron", worker.key, ttl_s=15)
        await worker.advance(10)
        assert not await lead("cron", other.key, ttl_s=15)
        await worker.advance(6)
        assert await lead("cron", other.key, ttl_s=15)
        assert not await lead("cron", worker.key, ttl_s=15)

    async def test_names_are_independent(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2")
        assert await store.processes.lead("a", worker.key, ttl_s=15)
        assert await store.processes.lead("b", other.key, ttl_s=15)

    async def test_it_can_be_given_up_at_once(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2")
        await store.processes.lead("cron", worker.key, ttl_s=15)
        await store.processes.release_lead("cron", other.key)
        assert not await store.processes.lead("cron", other.key, ttl_s=15)
        await store.processes.release_lead("cron", worker.key)
        assert await store.processes.lead("cron", other.key, ttl_s=15)
        await store.processes.release_lead("nothing", worker.key)

    async def test_a_lease_from_before_the_clock_was_set_back_is_free(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2", lease_s=600.0)
        assert await store.processes.lead("cron", worker.key, ttl_s=15)
        clock.jump(-5)
        assert not await store.processes.lead("cron", other.key, ttl_s=15)
        clock.jump(-3_600)
        assert await store.processes.lead("cron", other.key, ttl_s=15)
        assert not await store.processes.lead("cron", worker.key, ttl_s=15)

    async def test_many_at_once_elect_one(self, store: Store, clock: MovableClock) -> None:
        workers = [await Process.register(store, clock, host_id=f"host-{n}") for n in range(8)]
        won = await asyncio.gather(
            *(store.processes.lead("cron", worker.key, ttl_s=15) for worker in workers)
        )
        assert sum(won) == 1
