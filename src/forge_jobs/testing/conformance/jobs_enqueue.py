"""Enqueue: what is stored, in which state, and that it comes back unchanged."""

import asyncio
import json

import pytest

from forge_jobs.core import ids
from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import LaneOrder, Successor, UniqueWhile
from forge_jobs.core.outcome import Dead, Done, Failed
from forge_jobs.core.parent import without_parent
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import Process, all_jobs, claim_of, enqueue, new_job, record

PAYLOADS = {
    "object": b'{"to":"a@b.c","n":1}',
    "spaces": b'{ "a" : [ 1 ,2 ],\n\t"b":null }',
    "unicode": '{"name":"Ärger 🦊 \u2028 日本","key ü":"é"}'.encode(),
    "escapes": rb'{"a":"\u00e9 \ud83e\udd8a \"q\" \\ \/ \n"}',
    "big integer": b'{"n":123456789012345678901234567890}',
    "long float": b'{"x":0.1000000000000000055511151231257827,"y":1e300,"z":-0.0}',
    "repeated name": b'{"a":1,"a":2}',
    "just above 2 KB": json.dumps({"text": "x" * 2_100}).encode(),
    "large": json.dumps({"text": "ß" * 100_000}, ensure_ascii=False).encode(),
}

OPTIONS = {"soft": 1.5, "names": ["a", "ü \x00"], "deep": {"x": None, "y": True}}


@pytest.mark.asyncio
class TestEnqueue:
    """``JobStore.enqueue`` without dedupe keys."""

    async def test_a_job_that_is_due_is_pending(self, store: Store, clock: MovableClock) -> None:
        answer = await enqueue(store)
        job = await record(store, answer.id)
        assert (answer.status, answer.duplicate) == (JobStatus.PENDING, False)
        assert job.status is JobStatus.PENDING
        assert job.key == answer.key
        assert (job.attempts, job.epoch, job.owner) == (0, 0, None)
        assert job.enqueued_at == job.run_at == clock.now()
        assert job.started_at is None
        assert job.finished_at is None

    async def test_a_delay_counts_from_store_time(self, store: Store, clock: MovableClock) -> None:
        clock.advance(7)
        answer = await enqueue(store, delay_s=90.5)
        job = await record(store, answer.id)
        assert answer.status is job.status is JobStatus.SCHEDULED
        assert job.run_at == clock.now() + int(90.5 * SECOND)

    async def test_an_absolute_time_wins_over_a_delay(
        self, store: Store, clock: MovableClock
    ) -> None:
        at = clock.now() + 5 * SECOND
        job = await record(store, (await enqueue(store, run_at=at, delay_s=900.0)).id)
        assert (job.status, job.run_at) == (JobStatus.SCHEDULED, at)

    async def test_a_time_in_the_past_is_due_now(self, store: Store, clock: MovableClock) -> None:
        answer = await enqueue(store, run_at=clock.now() - 60 * SECOND)
        assert answer.status is JobStatus.PENDING

    async def test_a_job_whose_limit_is_full_is_held(self, store: Store) -> None:
        answer = await enqueue(store, hold=True, limit_key="host:a")
        assert answer.status is JobStatus.HELD
        assert (await record(store, answer.id)).limit_key == "host:a"

    async def test_a_held_request_that_is_due_later_is_scheduled(self, store: Store) -> None:
        answer = await enqueue(store, hold=True, limit_key="host:a", delay_s=60.0)
        assert answer.status is JobStatus.SCHEDULED

    async def test_expiry_is_relative_or_absolute(self, store: Store, clock: MovableClock) -> None:
        at = clock.now() + 9 * SECOND
        relative = await record(store, (await enqueue(store, expires_s=3.0)).id)
        absolute = await record(store, (await enqueue(store, expires_s=3.0, expires_at=at)).id)
        assert relative.expires_at == clock.now() + 3 * SECOND
        assert absolute.expires_at == at

    async def test_every_field_comes_back(self, store: Store) -> None:
        answer = await enqueue(
            store,
            kind="mail.send:v2",
            queue="mail-1.x",
            payload=b'{"a":1}',
            priority=-7,
            max_attempts=3,
            timeout_s=2.5,
            dedupe_key="welcome:42",
            dedupe_for_s=3600.0,
            unique_while=UniqueWhile.WAITING,
            tags=("vip", "ünï"),
            limit_key="host:b",
            lane="chat:7",
            order=LaneOrder.SERIAL,
            on_dead=Successor("tell", "ops", 2),
            trace="00-abc-def-01",
            options=OPTIONS,
        )
        job = await record(store, answer.id)
        assert (job.kind, job.queue, job.payload) == ("mail.send:v2", "mail-1.x", b'{"a":1}')
        assert (job.priority, job.max_attempts, job.timeout_s) == (-7, 3, 2.5)
        assert (job.dedupe_key, job.dedupe_for_s) == ("welcome:42", 3600.0)
        assert job.unique_while is UniqueWhile.WAITING
        assert job.tags == ("vip", "ünï")
        assert (job.limit_key, job.lane, job.order) == ("host:b", "chat:7", LaneOrder.SERIAL)
        assert job.on_dead == Successor("tell", "ops", 2)
        assert job.trace == "00-abc-def-01"
        assert job.options == OPTIONS

    @pytest.mark.parametrize("others", [0, 5, 99])
    async def test_rare_options_stay_with_their_job(
        self, store: Store, worker: Process, others: int
    ) -> None:
        """Through every path that stores one job or many, claims, retries and finishes it."""
        plain = [new_job(priority=1)] * others
        on_dead = Successor("tell", "ops", options={"loud": True})
        mine = new_job(options=OPTIONS, on_dead=on_dead, max_attempts=2)
        answer = (await store.jobs.enqueue([*plain, mine]))[-1]
        job, *rest = await worker.claim(free=1 + others)
        assert (job.key, job.options) == (answer.key, OPTIONS)
        assert [other.options for other in rest] == [None] * others
        await worker.exchange(release=[claim_of(job)])
        job = await worker.claim_one()
        await worker.finish(job, Failed("no luck"))
        await store.jobs.act(BulkAction.RUN_NOW, Selection(ids=(answer.id,)), limit=1)
        job = await worker.claim_one()
        assert job.options == OPTIONS
        await worker.finish(job, Dead("x"))
        [successor] = [one for one in await all_jobs(store) if one.kind == "tell"]
        assert without_parent(successor.options) == {"loud": True}
        assert (await record(store, answer.id)).options == OPTIONS
        await store.jobs.act(BulkAction.RETRY, Selection(ids=(answer.id,)), limit=1)
        job = await worker.claim_one()
        assert job.options == OPTIONS
        await worker.finish(job, Done())
        ended = await record(store, answer.id)
        assert (ended.status, ended.options) == (JobStatus.DONE, OPTIONS)

    async def test_payloads_and_results_come_back_byte_for_byte(
        self, store: Store, worker: Process
    ) -> None:
        for name, payload in PAYLOADS.items():
            answer = await enqueue(store, payload=payload)
            assert (await record(store, answer.id)).payload == payload, name
            claimed = await worker.claim_one()
            assert claimed.payload == payload, name
            await worker.finish(claimed, Done(), result=payload)
            ended = await record(store, answer.id)
            assert (ended.payload, ended.result) == (payload, payload), name

    async def test_answers_line_up_with_requests(self, store: Store) -> None:
        requests = [new_job(kind=f"k{n}", delay_s=float(n % 2)) for n in range(25)]
        answers = await store.jobs.enqueue(requests)
        assert len({answer.key for answer in answers}) == 25
        for request, answer in zip(requests, answers, strict=True):
            assert (await record(store, answer.id)).kind == request.kind
            due = request.delay_s == 0
            assert answer.status is (JobStatus.PENDING if due else JobStatus.SCHEDULED)

    async def test_nothing_to_store_is_fine(self, store: Store) -> None:
        assert await store.jobs.enqueue([]) == []
        assert await all_jobs(store) == []

    async def test_ids_sort_by_age_and_name_this_store(
        self, store: Store, clock: MovableClock
    ) -> None:
        made: list[str] = []
        for _ in range(5):
            clock.advance(0.002)
            answer = await enqueue(store)
            made.append(answer.id)
            assert ids.row_key(answer.id, store.tag) == (answer.key, clock.now() // 1000)
        assert made == sorted(made)

    async def test_keys_are_never_reused(self, store: Store) -> None:
        first = await enqueue(store)
        await store.jobs.act(BulkAction.DELETE, Selection(ids=(first.id,)), limit=10)
        second = await enqueue(store)
        assert second.key > first.key
        assert await store.jobs.get(first.id) is None

    async def test_concurrent_calls_all_land(self, store: Store) -> None:
        answers = await asyncio.gather(*(enqueue(store, kind=f"k{n}") for n in range(60)))
        assert len({answer.id for answer in answers}) == 60
        stored = {job.kind for job in await all_jobs(store)}
        assert stored == {f"k{n}" for n in range(60)}

    async def test_calls_from_other_threads_with_their_own_loop(self, store: Store) -> None:
        def call(n: int) -> str:
            return asyncio.run(enqueue(store, kind=f"k{n}")).id

        made = await asyncio.gather(*(asyncio.to_thread(call, n) for n in range(8)))
        assert len(set(made)) == 8
        assert len(await all_jobs(store)) == 8
