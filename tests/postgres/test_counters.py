"""Counter entries of done jobs: made by the worker, or by the server if a finish is not applied."""

import pytest

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.counters import Minute
from forge_jobs.core.decide import Finish, done
from forge_jobs.core.histogram import EMPTY, histogram
from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import ClaimedJob, NewJob
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Exchange, Verdict, Want
from forge_jobs.store.processes import NewProcess

KINDS = ("cut", "glue")


async def claims(store: PostgresStore, owner: int) -> list[ClaimedJob]:
    await store.jobs.enqueue([NewJob(kind=KINDS[n % 2], queue="q") for n in range(10)])
    answer = await store.jobs.exchange(Exchange(owner=owner, number=1, want=[Want("q", 10)]))
    assert len(answer.claims) == 10
    return list(answer.claims)


def finish(job: ClaimedJob) -> Finish:
    return done(job, result=None, ran_s=0.001 * job.key, waited_s=0.01 * job.key)


async def register(store: PostgresStore) -> int:
    me = NewProcess(host_id="h", label="l", queues=("q",), pid=1, hostname="b", lease_s=600.0)
    return await store.processes.register(me)


async def check(store: PostgresStore, jobs: list[ClaimedJob], *, timed: bool) -> None:
    """The totals agree with the rows, before and after the roll-up."""
    page = await store.jobs.page(Filter(statuses=(JobStatus.DONE,)), limit=100)
    for rolled_up in (False, True):
        if rolled_up:
            await store.metrics.roll_up(limit=1_000)
        totals = {part.kind: part for part in await store.metrics.totals()}
        for kind in KINDS:
            ended = [job for job in jobs if job.kind == kind]
            took = [
                ((row.finished_at or 0) - row.enqueued_at) / SECOND
                for row in page.jobs
                if row.kind == kind
            ]
            assert totals[kind].done == len(ended) == len(took)
            same(totals[kind], ended, took if timed else None)


def same(part: Minute, ended: list[ClaimedJob], took: list[float] | None) -> None:
    if took is None:
        assert part.waited == part.ran == part.took == EMPTY
        return
    assert part.waited.buckets == histogram(0.01 * job.key for job in ended).buckets
    assert part.ran.buckets == histogram(0.001 * job.key for job in ended).buckets
    assert part.took.buckets == histogram(took).buckets
    assert part.took.sum_s == pytest.approx(sum(took))
    assert part.waited.sum_s == pytest.approx(sum(0.01 * job.key for job in ended))
    assert part.ran.sum_s == pytest.approx(sum(0.001 * job.key for job in ended))


@pytest.mark.parametrize("timed", [True, False], ids=["timed", "not timed"])
async def test_entries_made_by_the_worker(store: PostgresStore, timed: bool) -> None:
    owner = await register(store)
    jobs = await claims(store, owner)
    finishes = [finish(job) for job in jobs]
    await store.jobs.exchange(Exchange(owner=owner, number=2, finish=finishes, timed=timed))
    await check(store, jobs, timed=timed)


@pytest.mark.parametrize("timed", [True, False], ids=["timed", "not timed"])
async def test_entries_made_by_the_server_when_finishes_are_stale_or_repeated(
    store: PostgresStore, timed: bool
) -> None:
    owner = await register(store)
    jobs = await claims(store, owner)
    first = [finish(job) for job in jobs[:3]]
    await store.jobs.exchange(Exchange(owner=owner, number=2, finish=first, timed=timed))
    stale = Finish(
        jobs[3].key, jobs[3].epoch + 7, first[0].event, first[0].status, "q", jobs[3].kind
    )
    finishes = [*first[1:], stale, *(finish(job) for job in jobs[4:])]
    answer = await store.jobs.exchange(
        Exchange(owner=owner, number=3, finish=finishes, timed=timed)
    )
    assert list(answer.verdicts) == [
        *[Verdict.ALREADY] * 2, Verdict.STALE, *[Verdict.APPLIED] * 6,
    ]  # fmt: skip
    await check(store, [*jobs[:3], *jobs[4:]], timed=timed)
