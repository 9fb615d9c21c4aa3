"""What a claim waits for: the disk, unless a few jobs that nothing binds are all there is to it."""

import pytest

from forge_jobs.backends.postgres import exchange
from forge_jobs.backends.postgres.session import Link
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.decide import Finish, done
from forge_jobs.core.job import Claim, LaneOrder, NewJob
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess

PLAIN = NewJob(kind="work", queue="q")
IN_A_LANE = NewJob(kind="work", queue="q", lane="l", order=LaneOrder.SERIAL)
KEYED = NewJob(kind="work", queue="q", limit_key="work/a")


async def register(store: PostgresStore) -> int:
    me = NewProcess(host_id="h", label="l", queues=("q",), pid=1, hostname="b", lease_s=600.0)
    return await store.processes.register(me)


async def waits_for_the_disk(store: PostgresStore, request: Exchange, claims: int) -> bool:
    """Run a round and ask, before it commits, whether the commit will wait."""
    exchanger = store.jobs._exchanger
    ends = list(request.finish)
    values = [*exchange._before(request, ends, {}), *exchanger._after(request)]

    async def work(link: Link) -> bool:
        call = exchanger._sql["exchange"]
        found = await link.fetch(call, None, request.owner, request.number, *values)
        assert len(found) - 1 == claims
        [row] = await link.fetch("SHOW synchronous_commit")
        return row[0] == "on"

    return await store._server.within(work)


@pytest.mark.parametrize(
    ("jobs", "waits"),
    [
        ([PLAIN], False),
        ([PLAIN] * 10, False),
        ([PLAIN] * 11, True),
        ([IN_A_LANE], True),
        ([PLAIN, IN_A_LANE], True),
        ([KEYED], True),
    ],
    ids=["one", "ten", "many", "lane", "with a lane", "limit"],
)
async def test_a_few_free_jobs_start_without_waiting_for_the_disk(
    store: PostgresStore, jobs: list[NewJob], waits: bool
) -> None:
    owner = await register(store)
    await store.jobs.enqueue(jobs)
    request = Exchange(owner=owner, number=1, want=[Want("q", 20)])
    assert await waits_for_the_disk(store, request, len(jobs)) is waits


async def test_an_ending_always_waits_for_the_disk(store: PostgresStore) -> None:
    owner = await register(store)
    await store.jobs.enqueue([PLAIN])
    answer = await store.jobs.exchange(Exchange(owner=owner, number=1, want=[Want("q", 1)]))
    ends: list[Finish] = [done(answer.claims[0], result=None, ran_s=0.0, waited_s=0.0)]
    await store.jobs.enqueue([PLAIN])
    request = Exchange(owner=owner, number=2, finish=ends, want=[Want("q", 1)])
    assert await waits_for_the_disk(store, request, 1)


async def test_handing_back_always_waits_for_the_disk(store: PostgresStore) -> None:
    owner = await register(store)
    await store.jobs.enqueue([PLAIN])
    answer = await store.jobs.exchange(Exchange(owner=owner, number=1, want=[Want("q", 1)]))
    held = answer.claims[0]
    back = [Claim(held.key, held.epoch)]
    await store.jobs.enqueue([PLAIN])
    request = Exchange(owner=owner, number=2, release=back, want=[Want("q", 1)])
    assert await waits_for_the_disk(store, request, 1)
