"""The store: open and close, notifications, synchronous calls, maintenance, two stores at once."""

import asyncio
import threading
from hashlib import sha256

import pytest

from forge_jobs.core.errors import BadOption
from forge_jobs.core.outcome import Done
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Verdict
from forge_jobs.store.queues import QueueChange
from forge_jobs.store.store import Severity, Store
from forge_jobs.testing.clock import MovableClock

from .fixtures import MakeStore, SecondStore
from .worker import Process, all_jobs, claim_of, enqueue, job_counts, new_job, record

# How long to wait for a notification that never comes.
MAX_WAIT_S = 60.0


class NotificationProbe:
    """Records notifications from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._notified = asyncio.Event()

    def notify(self) -> None:
        self._loop.call_soon_threadsafe(self._notified.set)

    async def notified(self) -> bool:
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                await self._notified.wait()
        except TimeoutError:
            return False
        self._notified.clear()
        return True


@pytest.mark.asyncio
class TestStore:
    """Open, close and maintenance."""

    async def test_opening_and_closing_twice_is_fine(self, make_store: MakeStore) -> None:
        store = make_store()
        await store.open()
        await store.open()
        answer = await enqueue(store)
        await store.close()
        await store.close()
        await store.open()
        assert (await record(store, answer.id)).id == answer.id
        await store.close()

    async def test_stores_on_different_databases_are_independent(
        self, store: Store, make_store: MakeStore
    ) -> None:
        other = make_store()
        await other.open()
        answer = await enqueue(store)
        assert await all_jobs(other) == []
        assert await other.jobs.get(answer.id) is None
        await other.close()

    async def test_the_tag_fits_into_an_id(self, store: Store) -> None:
        assert 0 <= store.tag < 1 << 16

    async def test_the_schema_is_current_after_opening(self, store: Store) -> None:
        status = await store.maintenance.schema_status()
        assert status.current == status.wanted
        assert await store.maintenance.migrate() == status

    async def test_maintenance_needs_no_open_store(self, make_store: MakeStore) -> None:
        store = make_store()
        status = await store.maintenance.migrate()
        assert status.current == status.wanted
        await store.open(migrate=False)
        await enqueue(store)
        await store.close()
        await store.maintenance.drop()
        await store.open()
        assert await all_jobs(store) == []
        await store.close()

    async def test_it_describes_and_examines_itself(self, store: Store) -> None:
        facts = store.maintenance.describe()
        assert facts["backend"] == store.capabilities.name
        findings = await store.maintenance.examine()
        assert findings
        assert all(finding.severity is not Severity.ERROR for finding in findings)
        assert all(finding.cure for finding in findings if finding.severity is not Severity.OK)

    async def test_it_knows_how_large_it_is(self, store: Store) -> None:
        before = await store.maintenance.size()
        # Data that no store can compress.
        noise = "".join(sha256(bytes([n % 256, n // 256])).hexdigest() for n in range(4_000))
        for _ in range(4):
            await enqueue(store, payload=f'"{noise}"'.encode())
        after = await store.maintenance.size()
        assert 0 <= after.log <= after.total == sum(count for _, count in after.parts)
        assert (after.total > before.total) is store.capabilities.durable

    async def test_an_unknown_transaction_is_refused(self, store: Store) -> None:
        with pytest.raises(BadOption):
            store.enqueue_in(object(), [new_job()])
        assert await all_jobs(store) == []


@pytest.mark.asyncio
class TestSyncEnqueue:
    """``enqueue_sync``, where the store has it."""

    async def test_it_stores_what_enqueue_stores(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        if not store.capabilities.sync_calls:
            return
        requests = [new_job(payload=b"[1]", dedupe_key="a"), new_job(dedupe_key="a")]
        answers = await asyncio.to_thread(store.enqueue_sync, requests)
        assert [answer.duplicate for answer in answers] == [False, True]
        job = await worker.claim_one()
        assert (job.key, job.payload, job.enqueued_at) == (answers[0].key, b"[1]", clock.now())

    async def test_a_try_stores_the_job_or_has_no_effect(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        """Where it cannot, ``jobs.enqueue`` stores the same jobs, and may prepare the next try."""
        keys: list[int] = []
        for number in range(3):
            jobs = [new_job(payload=b"[%d]" % number)]
            stored = await asyncio.to_thread(store.try_enqueue_sync, jobs)
            if stored is None:
                assert len(await all_jobs(store)) == number
                stored = await store.jobs.enqueue(jobs)
            [reply] = stored
            assert (reply.duplicate, reply.status) == (False, JobStatus.PENDING)
            keys.append(reply.key)
        claimed = await worker.claim(free=5)
        assert [(job.key, job.payload) for job in claimed] == [
            (key, b"[%d]" % number) for number, key in enumerate(keys)
        ]
        assert {job.enqueued_at for job in claimed} == {clock.now()}

    async def test_it_opens_the_store_by_itself(self, make_store: MakeStore) -> None:
        store = make_store()
        if not store.capabilities.sync_calls:
            return
        [answer] = await asyncio.to_thread(store.enqueue_sync, [new_job()])
        await store.open()
        assert (await record(store, answer.id)).status is JobStatus.PENDING
        await store.close()

    async def test_many_threads_at_once(self, store: Store) -> None:
        if not store.capabilities.sync_calls:
            return
        failures: list[BaseException] = []

        def produce(number: int) -> None:
            try:
                for turn in range(10):
                    store.enqueue_sync([new_job(kind=f"k{number}-{turn}")])
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        await asyncio.gather(*(asyncio.to_thread(thread.join, 60) for thread in threads))
        assert not failures
        assert len(await all_jobs(store)) == 60


@pytest.mark.asyncio
class TestNotifications:
    """``subscribe``: a notification follows every call that makes jobs due."""

    async def test_A24_whatever_makes_a_job_due_notifies(
        self, store: Store, worker: Process
    ) -> None:
        probe = NotificationProbe()
        later = await enqueue(store, delay_s=600.0)
        sooner = await enqueue(store, delay_s=600.0)
        dead = await enqueue(store)
        job = await worker.claim_one()
        await store.jobs.act(BulkAction.CANCEL, Selection(ids=(dead.id,)), reason="x", limit=1)
        await worker.exchange(release=[claim_of(job)])
        await enqueue(store, hold=True, limit_key="a")
        subscription = await store.subscribe(["q"], probe.notify)
        calls = {
            "enqueue": lambda: enqueue(store),
            "run_now": lambda: store.jobs.act(
                BulkAction.RUN_NOW, Selection(ids=(later.id,)), limit=1
            ),
            "reschedule": lambda: store.jobs.act(
                BulkAction.RESCHEDULE, Selection(ids=(sooner.id,)), delay_s=300.0, limit=1
            ),
            "retry": lambda: store.jobs.act(BulkAction.RETRY, Selection(ids=(dead.id,)), limit=1),
            "unhold": lambda: store.jobs.unhold("a", limit=1),
        }
        for name, call in calls.items():
            await call()
            assert await probe.notified(), name
        await subscription.close()
        await subscription.close()

    async def test_a_change_by_an_operator_notifies(self, store: Store) -> None:
        probe = NotificationProbe()
        await store.queues.ensure("q", slots=1)
        subscription = await store.subscribe(["q"], probe.notify)
        await store.queues.change("q", QueueChange(paused=True))
        assert await probe.notified()
        await subscription.close()

    async def test_a_sync_enqueue_notifies(self, store: Store) -> None:
        if not store.capabilities.sync_calls:
            return
        probe = NotificationProbe()
        subscription = await store.subscribe(["q"], probe.notify)
        await asyncio.to_thread(store.enqueue_sync, [new_job()])
        assert await probe.notified()
        await subscription.close()

    async def test_A8_a_failing_notification_fails_nothing(self, store: Store) -> None:
        def broken() -> None:
            raise RuntimeError("out of order")

        subscription = await store.subscribe(["q"], broken)
        answer = await enqueue(store)
        assert (await record(store, answer.id)).status is JobStatus.PENDING
        await subscription.close()


@pytest.mark.asyncio
class TestTwoStores:
    """Several store objects on one database, where the store allows it."""

    async def test_what_one_writes_the_other_reads(
        self, store: Store, clock: MovableClock, second_store: SecondStore | None
    ) -> None:
        if second_store is None:
            assert not store.capabilities.multi_process
            return
        other = second_store(store)
        await other.open()
        answer = await enqueue(store, dedupe_key="a")
        assert other.tag == store.tag
        assert (await enqueue(other, dedupe_key="a")).id == answer.id
        worker = await Process.register(other, clock)
        job = await worker.claim_one()
        assert (await record(store, answer.id)).owner == worker.key
        await store.jobs.act(BulkAction.CANCEL, Selection(ids=(answer.id,)), reason="x", limit=1)
        assert list((await worker.exchange()).cancels) == [job.key]
        assert await worker.finish(job, Done(), result=b"1") is Verdict.APPLIED
        assert (await record(store, answer.id)).result == b"1"
        assert await job_counts(store) == await job_counts(other) == {("q", JobStatus.DONE): 1}
        await other.close()

    async def test_the_other_store_is_notified(
        self, store: Store, second_store: SecondStore | None
    ) -> None:
        if second_store is None:
            assert not store.capabilities.multi_process
            return
        other = second_store(store)
        await other.open()
        probe = NotificationProbe()
        subscription = await other.subscribe(["q"], probe.notify)
        await enqueue(store)
        assert await probe.notified()
        await subscription.close()
        await other.close()

    async def test_racing_stores_make_one_job_per_key(
        self, store: Store, clock: MovableClock, second_store: SecondStore | None
    ) -> None:
        if second_store is None:
            assert not store.capabilities.multi_process
            return
        other = second_store(store)
        await other.open()
        both = (store, other)
        answers = await asyncio.gather(
            *(enqueue(both[n % 2], dedupe_key=f"k{n // 8}") for n in range(40))
        )
        assert sum(not answer.duplicate for answer in answers) == 5
        workers = [
            await Process.register(who, clock, host_id=f"h{n}") for n, who in enumerate(both)
        ]
        rounds = await asyncio.gather(*(workers[n % 2].claim(free=2) for n in range(4)))
        keys = [job.key for jobs in rounds for job in jobs]
        assert len(keys) == len(set(keys)) == 5
        await other.close()
