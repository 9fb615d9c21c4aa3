"""What only the memory backend promises: refusing illegal moves, private and named stores."""

import threading

import pytest

from forge_jobs.backends.memory import dedupe_keys, transitions
from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.backends.memory.tables import Tables
from forge_jobs.core.decide import Finish
from forge_jobs.core.errors import Invalid
from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import Selection
from forge_jobs.core.status import TERMINAL, Attempts, Event, JobStatus, targets
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.store.jobs import Exchange, Retention, Want
from forge_jobs.store.processes import NewProcess
from forge_jobs.testing.clock import MovableClock

JOB = NewJob(kind="work", queue="q")


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def store(clock: MovableClock) -> MemoryStore:
    return MemoryStore(clock, SeededEntropy(1))


def test_the_one_move_function_refuses_what_the_table_does_not_have(clock: MovableClock) -> None:
    refused = 0
    for source in JobStatus:
        for event in Event:
            for target in JobStatus:
                if target in targets(source, event):
                    continue
                tables = Tables(clock, SeededEntropy(1))
                transitions.insert(tables, JOB, 0)
                row = tables.jobs[1]
                row.status = source
                before = row.record()
                with pytest.raises(Invalid, match=str(event)):
                    transitions.transition(tables, row, event, target, 5, owner=3)
                assert row.record() == before
                refused += 1
    assert refused > 1_000


def test_a_move_with_the_wrong_word_on_attempts_is_refused(clock: MovableClock) -> None:
    tables = Tables(clock, SeededEntropy(1))
    transitions.insert(tables, JOB, 0)
    with pytest.raises(Invalid, match="attempt"):
        transitions.transition(
            tables, tables.jobs[1], Event.CLAIM, JobStatus.RUNNING, 5, attempts=Attempts.KEPT
        )


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (Event.DONE, JobStatus.FAILED),
        (Event.CLAIM, JobStatus.RUNNING),
        (Event.RELEASE, JobStatus.PENDING),
        (Event.SNOOZE, JobStatus.PENDING),
    ],
)
async def test_a_finish_off_the_table_is_refused_before_anything_happens(
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


async def test_lapsed_keys_are_swept(store: MemoryStore, clock: MovableClock) -> None:
    tables = store._tables
    asked = NewJob(kind="work", queue="q", dedupe_key="a", dedupe_for_s=5.0)
    [answer] = await store.jobs.enqueue([asked])
    await store.jobs.cancel(Selection(ids=(answer.id,)), reason="x", limit=1)
    clock.advance(6)
    assert dedupe_keys.holder(tables, asked, clock.now()) is None
    assert len(tables.dedupe_entries) == 1
    await store.jobs.purge(Retention(), limit=10)
    assert tables.dedupe_entries == {}


async def test_a_ring_comes_synchronously_and_outside_the_lock(store: MemoryStore) -> None:
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
        with store._tables.write():
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


def test_ended_states_need_a_person(clock: MovableClock) -> None:
    assert {status for status in JobStatus if not targets(status, Event.EXPIRE)} == {
        *TERMINAL,
        JobStatus.RUNNING,
    }
