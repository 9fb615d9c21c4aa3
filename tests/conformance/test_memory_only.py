"""What only the memory backend promises: no illegal transition, synchronous notifications.

Also that the conformance suite is complete: ``all`` exports every test class.
"""

import importlib
import pkgutil
import threading

import pytest

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.backends.shared.rowwise import transitions
from forge_jobs.core.decide import Finish
from forge_jobs.core.errors import Invalid
from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import BulkAction, Filter, Selection
from forge_jobs.core.status import TERMINAL, Attempts, Event, JobStatus, targets
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.store.jobs import Exchange, Retention, Want
from forge_jobs.store.processes import NewProcess
from forge_jobs.testing import conformance
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance import all as conformance_all

JOB = NewJob(kind="work", queue="q")


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def store(clock: MovableClock) -> MemoryStore:
    return MemoryStore(clock, SeededEntropy(1))


def test_transition_refuses_what_is_not_in_the_table(clock: MovableClock) -> None:
    refused = 0
    for source in JobStatus:
        for event in Event:
            for target in JobStatus:
                if target in targets(source, event):
                    continue
                tx = MemoryStore(clock, SeededEntropy(1))._storage.begin(0)
                tx.insert([JOB])
                row = tx.load([1])[1]
                row.status = source
                before = row.record()
                with pytest.raises(Invalid, match=str(event)):
                    transitions.transition(tx, row, event, target)
                assert row.record() == before
                refused += 1
    assert refused > 1_000


def test_a_transition_with_wrong_attempts_is_refused(clock: MovableClock) -> None:
    tx = MemoryStore(clock, SeededEntropy(1))._storage.begin(0)
    tx.insert([JOB])
    with pytest.raises(Invalid, match="attempt"):
        transitions.transition(tx, tx.load([1])[1], Event.CLAIM, JobStatus.RUNNING, Attempts.KEPT)


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (Event.DONE, JobStatus.FAILED),
        (Event.CLAIM, JobStatus.RUNNING),
        (Event.RELEASE, JobStatus.PENDING),
        (Event.SNOOZE, JobStatus.PENDING),
    ],
)
async def test_an_illegal_finish_is_refused_before_anything_is_written(
    store: MemoryStore, event: Event, status: JobStatus
) -> None:
    [first, second] = await store.jobs.enqueue([JOB, JOB])
    owner = await store.processes.register(
        NewProcess(host_id="h", label="", queues=("q",), pid=1, hostname="")
    )
    await store.jobs.exchange(Exchange(owner=owner, number=1, want=[Want("q", 2)]))
    good = Finish(first.key, 1, Event.DONE, JobStatus.DONE, "q", "work")
    bad = Finish(second.key, 1, event, status, "q", "work")
    with pytest.raises(Invalid, match="cannot end"):
        await store.jobs.exchange(Exchange(owner=owner, number=2, finish=[good, bad]))
    seen = await store.jobs.peek([first.id, second.id])
    assert [peek and peek.status for peek in seen] == [JobStatus.RUNNING] * 2


async def test_lapsed_keys_are_purged(store: MemoryStore, clock: MovableClock) -> None:
    tables = store._storage.tables
    request = NewJob(kind="work", queue="q", dedupe_key="a", dedupe_for_s=5.0)
    [answer] = await store.jobs.enqueue([request])
    await store.jobs.act(BulkAction.CANCEL, Selection(ids=(answer.id,)), reason="x", limit=1)
    clock.advance(6)
    assert store._storage.begin(clock.now()).key_holder("work", "a") is None
    assert len(tables.dedupe_entries) == 1
    await store.jobs.purge(Retention(), limit=10)
    assert tables.dedupe_entries == {}


async def test_a_failed_call_leaves_counts_that_agree_with_the_rows(store: MemoryStore) -> None:
    with pytest.raises(ValueError, match="NaN"):
        store.enqueue_sync([JOB, NewJob(kind="work", queue="q", delay_s=float("nan"))])
    stored = (await store.jobs.page(Filter(), limit=10)).jobs
    assert sum(count.jobs for count in await store.metrics.counts()) == len(stored) == 1


async def test_a_notification_is_synchronous_and_outside_the_lock(store: MemoryStore) -> None:
    seen: list[int] = []

    def notify() -> None:
        seen.append(len(store.enqueue_sync([NewJob(kind="x", queue="other")])))

    subscription = await store.subscribe(["q"], notify)
    await store.jobs.enqueue([JOB])
    assert seen == [1]
    await store.jobs.enqueue([NewJob(kind="x", queue="other")])
    assert seen == [1]
    await subscription.close()
    await store.jobs.enqueue([JOB])
    assert seen == [1]


async def test_a_fork_does_not_inherit_a_held_lock(store: MemoryStore) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with store._storage.write():
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    store.after_fork()
    assert len(await store.jobs.enqueue([JOB])) == 1
    done.set()
    thread.join(60)


async def test_the_same_seed_and_calls_give_the_same_store(clock: MovableClock) -> None:
    stores = [MemoryStore(clock, SeededEntropy(5)) for _ in range(2)]
    answers = [await each.jobs.enqueue([JOB, JOB]) for each in stores]
    assert answers[0] == answers[1]


def test_only_waiting_jobs_expire(clock: MovableClock) -> None:
    assert {status for status in JobStatus if not targets(status, Event.EXPIRE)} == {
        *TERMINAL,
        JobStatus.RUNNING,
        JobStatus.SUSPENDED,
    }


def test_all_exports_every_test_class_of_the_suite() -> None:
    names: set[str] = set()
    for part in pkgutil.iter_modules(conformance.__path__):
        module = importlib.import_module(f"{conformance.__name__}.{part.name}")
        names |= {name for name in vars(module) if name.startswith("Test")}
    assert names == {name for name in conformance_all.__all__ if name.startswith("Test")}
