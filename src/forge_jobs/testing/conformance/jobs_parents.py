"""The parent link: which job or schedule made a job, and the jobs that it made."""

import pytest

from forge_jobs.core.outcome import Dead, Done
from forge_jobs.core.parent import Parent, Via, parent_of, with_parent, with_schedule
from forge_jobs.core.selection import BulkAction, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.store import Store

from .jobs_successors import ON_DEAD
from .worker import Process, enqueue, new_job, record


@pytest.mark.asyncio
class TestParents:
    """``core.parent`` in a store, and ``Filter.parent``."""

    async def test_a_link_stays_with_its_job(self, store: Store, worker: Process) -> None:
        parent = await enqueue(store, queue="parents")
        links = (Via.HANDLER, Via.ON_DONE, Via.COPY)
        wanted = [with_parent(new_job(), parent.id, via) for via in links]
        wanted += [with_parent(new_job(tags=("vip",), options={"note": 1}), parent.id, Via.HANDLER)]
        wanted += [with_schedule(new_job(), "nightly")]
        answers = await store.jobs.enqueue(wanted)
        expected = [
            *(Parent(via, job_id=parent.id) for via in (*links, Via.HANDLER)),
            Parent(Via.SCHEDULE, schedule="nightly"),
        ]
        stored = [parent_of((await record(store, one.id)).options) for one in answers]
        assert stored == expected
        jobs = await worker.claim(free=9)
        assert [parent_of(job.options) for job in jobs] == expected
        await worker.send_finishes(*(worker.build_finish(job, Done()) for job in jobs))
        ended = [parent_of((await record(store, one.id)).options) for one in answers]
        assert ended == expected
        assert parent_of((await record(store, parent.id)).options) is None

    async def test_one_job_alone_keeps_its_link(self, store: Store, worker: Process) -> None:
        parent = await enqueue(store)
        linked = with_parent(new_job(payload=b'{"n":1}'), parent.id, Via.HANDLER)
        [answer] = await store.jobs.enqueue([linked])
        child = await record(store, answer.id)
        assert (parent_of(child.options), child.payload) == (
            Parent(Via.HANDLER, job_id=parent.id),
            b'{"n":1}',
        )
        assert {job.key for job in await worker.claim(free=2)} == {parent.key, answer.key}

    async def test_the_jobs_that_a_job_made_newest_first(
        self, store: Store, worker: Process
    ) -> None:
        parent, other = await enqueue(store, queue="p"), await enqueue(store, queue="p")
        wanted = [with_parent(new_job(), (parent, other)[n % 2].id, Via.HANDLER) for n in range(20)]
        answers = await store.jobs.enqueue(wanted)
        jobs = await worker.claim(free=7)
        await worker.send_finishes(*(worker.build_finish(job, Done()) for job in jobs[:5]))
        expected = [answer.id for answer in reversed(answers[::2])]
        mine = Filter(parent=parent.id)
        first = await store.jobs.page(mine, limit=6)
        rest = await store.jobs.page(mine, limit=6, after=first.next)
        assert [job.id for job in (*first.jobs, *rest.jobs)] == expected
        assert rest.next is None
        assert (await store.metrics.count(mine, cap=100)).jobs == 10
        done = Filter(parent=parent.id, statuses=(JobStatus.DONE,))
        assert {job.status for job in (await store.jobs.page(done, limit=9)).jobs} == {
            JobStatus.DONE
        }
        tagged = Filter(parent=parent.id, tag="vip")
        assert (await store.jobs.page(tagged, limit=9)).jobs == ()
        cancelled = await store.jobs.act(BulkAction.CANCEL, Selection(filter=mine), limit=50)
        assert (cancelled.changed + cancelled.requested, cancelled.skipped) == (7, 3)
        left = await store.jobs.page(
            Filter(parent=other.id, statuses=(JobStatus.PENDING,)), limit=50
        )
        assert left.jobs != ()

    async def test_the_job_of_a_dead_one_is_linked_to_it(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store, on_dead=ON_DEAD)
        await worker.send_finishes(worker.build_finish(await worker.claim_one(), Dead("lost")))
        [letter] = (await store.jobs.page(Filter(parent=answer.id), limit=5)).jobs
        assert letter.kind == ON_DEAD.kind
        assert parent_of(letter.options) == Parent(Via.ON_DEAD, job_id=answer.id)
