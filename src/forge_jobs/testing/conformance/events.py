"""Events: their order, which of them a wait takes, dedupe, retention, and many jobs that wait."""

import pytest

from forge_jobs.core.events import WaitRecord
from forge_jobs.core.instant import SECOND
from forge_jobs.core.outcome import Parked
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import StepKind
from forge_jobs.store.jobs import Retention, StepAnswer, Verdict, Want
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .step_requests import (
    check_wait,
    event,
    history,
    kinds,
    park,
    send,
    status_of,
    suspended,
    taken,
    topic,
    wait,
)
from .worker import Process, enqueue, job_counts, new_job

APPLIED = Verdict.APPLIED
_KEEP = Retention(done_s=None, dead_s=None, cancelled_s=None)


@pytest.mark.asyncio
class TestEvents:
    """Which event a wait takes."""

    async def test_events_are_taken_one_after_the_other_in_order(
        self, store: Store, worker: Process
    ) -> None:
        for number in range(3):
            await send(store, payload=b"%d" % number)
        await enqueue(store)
        job = await worker.claim_one()
        seen: list[bytes] = []
        last = 0
        for number in range(3):
            reply = await check_wait(worker, job, wait(topic(after=last), name=f"w{number}"))
            got = taken(reply.record)
            assert got.seq > last
            last = got.seq
            seen.append(bytes(got.payload))
        assert seen == [b"0", b"1", b"2"]
        after = wait(topic(after=last), name="w3")
        assert await check_wait(worker, job, after) == StepAnswer(APPLIED)
        await park(worker, job, after)
        assert await send(store, payload=b"3") == 1
        job = await worker.claim_one()
        assert job.steps is not None
        assert bytes(taken(job.steps.records[-1]).payload) == b"3"

    async def test_events_of_one_call_are_in_the_order_of_the_call(
        self, store: Store, worker: Process
    ) -> None:
        await suspended(store, worker)
        answers = await store.events.send([event(payload=b"%d" % n) for n in range(3)])
        assert [answer.resumed for answer in answers] == [1, 0, 0]
        job = await worker.claim_one()
        assert job.steps is not None
        first = taken(job.steps.records[0])
        second = await check_wait(worker, job, wait(topic(after=first.seq), name="again"))
        assert [bytes(first.payload), bytes(taken(second.record).payload)] == [b"0", b"1"]

    async def test_since_leaves_older_events_out(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        await send(store, payload=b"1")
        await worker.advance(10)
        since = clock.now()
        await enqueue(store)
        job = await worker.claim_one()
        asked = wait(topic(since=since))
        assert await check_wait(worker, job, asked) == StepAnswer(APPLIED)
        await send(store, payload=b"2")
        assert bytes(taken((await check_wait(worker, job, asked)).record).payload) == b"2"

    async def test_since_holds_for_a_suspended_job(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        asked = wait(topic(since=clock.now() + 10 * SECOND))
        answer = await suspended(store, worker, asked)
        assert await send(store) == 0
        assert await status_of(store, answer.id) is JobStatus.SUSPENDED
        await worker.advance(10)
        assert await send(store) == 1

    async def test_an_event_is_sent_to_every_job_that_waits(
        self, store: Store, worker: Process
    ) -> None:
        waiting = [await suspended(store, worker) for _ in range(3)]
        elsewhere = await suspended(store, worker, wait(topic("paid", "2")))
        assert await send(store, payload=b"7") == 3
        for answer in waiting:
            found = (await history(store, answer.id))["wait"]
            assert bytes(taken(found).payload) == b"7"
        assert await status_of(store, elsewhere.id) is JobStatus.SUSPENDED
        late = await enqueue(store, queue="late")
        job = await worker.claim_one("late")
        assert taken((await check_wait(worker, job, wait())).record).seq > 0
        assert late.key == job.key

    async def test_a_job_that_took_an_event_does_not_get_it_again(
        self, store: Store, worker: Process
    ) -> None:
        answer = await suspended(store, worker)
        await send(store)
        job = await worker.claim_one()
        assert job.steps is not None
        seq = taken(job.steps.records[0]).seq
        await park(worker, job, wait(topic(after=seq), name="second"))
        assert await status_of(store, answer.id) is JobStatus.SUSPENDED
        assert await store.events.deliver(limit=10) == 0

    async def test_payloads_come_back_byte_for_byte(self, store: Store, worker: Process) -> None:
        payload = b'{"a": "\xc3\xa9 \xf0\x9f\x8e\x89", "b": [1.50, null], "c":"\\u0000"}'
        large = b'"' + b"x" * 100_000 + b'"'
        await enqueue(store)
        job = await worker.claim_one()
        for number, sent in enumerate((payload, large)):
            await send(store, "e", str(number), payload=sent)
            asked = wait(topic("e", str(number)), name=f"w{number}")
            assert bytes(taken((await check_wait(worker, job, asked)).record).payload) == sent
        assert [one.payload for one in await store.events.page(limit=9)] == [large, payload]


@pytest.mark.asyncio
class TestSending:
    """Dedupe and retention of events, and many jobs that wait."""

    async def test_a_dedupe_key_sends_once_while_the_event_is_kept(
        self, store: Store, worker: Process
    ) -> None:
        await suspended(store, worker)
        once = event(dedupe_key="evt_1", keep_s=60.0)
        answers = await store.events.send([once, once])
        assert [(one.duplicate, one.resumed) for one in answers] == [(False, 1), (True, 0)]
        [again] = await store.events.send([once])
        assert again.duplicate
        others = [event("other", dedupe_key="evt_1"), event(dedupe_key="evt_2"), event()]
        assert [one.duplicate for one in await store.events.send(others)] == [False] * 3
        assert len(await store.events.page(limit=100)) == 4
        await worker.advance(61)
        [later] = await store.events.send([once])
        assert not later.duplicate

    async def test_the_key_of_an_event_is_not_that_of_a_job(
        self, store: Store, worker: Process
    ) -> None:
        await store.events.send([event("work", dedupe_key="a")])
        for kind in ("work", "event:work"):
            job = await enqueue(store, kind=kind, dedupe_key="a")
            assert not job.duplicate
        [answer] = await store.events.send([event("work", dedupe_key="a")])
        assert answer.duplicate
        await store.jobs.purge(_KEEP, limit=10)
        assert (await enqueue(store, dedupe_key="a")).duplicate

    async def test_an_event_is_kept_for_its_time(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        await send(store, payload=b"1", keep_s=60.0)
        await send(store, payload=b"2", keep_s=600.0)
        await enqueue(store)
        job = await worker.claim_one()
        await worker.advance(61)
        asked = wait(began_at=clock.now())
        assert bytes(taken((await check_wait(worker, job, asked)).record).payload) == b"2"
        assert await store.jobs.purge(_KEEP, limit=100) == 0
        assert [one.payload for one in await store.events.page(limit=9)] == [b"2"]
        await worker.advance(600)
        await store.jobs.purge(_KEEP, limit=100)
        assert await store.events.page(limit=9) == []
        asked = wait(name="later", began_at=clock.now())
        assert await check_wait(worker, job, asked) == StepAnswer(APPLIED)

    async def test_an_event_that_is_not_kept_reaches_those_that_wait(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        answer = await suspended(store, worker, wait(began_at=clock.now()))
        await worker.advance(1)
        assert await send(store, keep_s=0.0) == 1
        assert await kinds(store, answer.id) == {"wait": StepKind.EVENT}
        await worker.advance(1)
        await enqueue(store, queue="late")
        job = await worker.claim_one("late")
        assert await check_wait(worker, job, wait(began_at=clock.now())) == StepAnswer(APPLIED)

    @pytest.mark.parametrize("how", ["exchange", "deliver"])
    async def test_a_send_resumes_five_hundred_and_others_do_the_rest(
        self, store: Store, worker: Process, how: str
    ) -> None:
        await self._many_wait(store, worker, 1_203)
        assert await send(store, payload=b"1") == 500
        assert await job_counts(store) == {
            ("q", JobStatus.PENDING): 500, ("q", JobStatus.SUSPENDED): 703,
        }  # fmt: skip
        if how == "exchange":
            for _ in range(2):
                await worker.exchange(want=[Want("other", 1)])
        else:
            assert await store.events.deliver(limit=100) == 100
            assert await store.events.deliver(limit=1_000) == 603
            assert await store.events.deliver(limit=1_000) == 0
        assert await job_counts(store) == {("q", JobStatus.PENDING): 1_203}
        assert await store.events.waits(limit=10) == []

    async def test_an_undelivered_event_is_kept(self, store: Store, worker: Process) -> None:
        await self._many_wait(store, worker, 501)
        assert await send(store, keep_s=0.0) == 500
        await worker.advance(1)
        await store.jobs.purge(_KEEP, limit=10)
        assert await store.events.deliver(limit=10) == 1
        await store.jobs.purge(_KEEP, limit=10)
        assert await store.events.page(limit=10) == []

    async def test_one_call_resumes_five_hundred_for_all_its_events(
        self, store: Store, worker: Process
    ) -> None:
        await self._many_wait(store, worker, 300, key="1")
        await self._many_wait(store, worker, 300, key="2")
        answers = await store.events.send([event(key="1"), event(key="2")])
        assert [answer.resumed for answer in answers] == [300, 200]
        await worker.exchange()
        assert await job_counts(store) == {("q", JobStatus.PENDING): 600}

    async def test_events_without_a_waiting_job_cost_no_delivery(
        self, store: Store, worker: Process
    ) -> None:
        await store.events.send([event(key=str(n)) for n in range(600)])
        assert await store.events.deliver(limit=10) == 0
        assert len(await store.events.page(limit=1_000)) == 600

    async def _many_wait(self, store: Store, worker: Process, jobs: int, *, key: str = "1") -> None:
        await store.jobs.enqueue([new_job() for _ in range(jobs)])
        claims = await worker.claim(free=jobs)
        parked = Parked(wait(topic(key=key), began_at=worker.clock.now()), None)
        finishes = [worker.build_finish(job, parked) for job in claims]
        assert set(await worker.send_finishes(*finishes)) == {APPLIED}


@pytest.mark.asyncio
class TestEventPages:
    """``EventStore.page`` and ``EventStore.waits``."""

    async def test_pages_of_events_are_newest_first(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        for number in range(5):
            await send(store, "a", str(number % 2), payload=b"%d" % number, keep_s=60.0)
            await worker.advance(1)
        await send(store, "b", "0", payload=b"9")
        every = await store.events.page(limit=10)
        assert [one.payload for one in every] == [b"9", b"4", b"3", b"2", b"1", b"0"]
        assert (every[1].name, every[1].key) == ("a", "0")
        assert every[1].ends_at == every[1].sent_at + 60 * SECOND == clock.now() + 59 * SECOND
        named = await store.events.page(name="a", limit=2)
        assert [one.payload for one in named] == [b"4", b"3"]
        rest = await store.events.page(name="a", limit=10, before=named[-1].seq)
        assert [one.payload for one in rest] == [b"2", b"1", b"0"]
        keyed = await store.events.page(name="a", key="1", limit=10)
        assert [one.payload for one in keyed] == [b"3", b"1"]
        assert await store.events.page(name="a", key="", limit=10) == []

    async def test_pages_of_waits_are_in_the_order_of_name_key_and_job(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        deadline = clock.now() + 60 * SECOND
        first = await suspended(
            store, worker, wait(topic("b", "2"), topic("a.x", "1"), name="w", deadline=deadline)
        )
        second = await suspended(store, worker, wait(topic("b", "2")), kind="other")
        third = await suspended(store, worker, wait(topic("a", "1")))
        every = await store.events.waits(limit=10)
        assert [(one.name, one.key, one.job_id) for one in every] == [
            ("a", "1", third.id), ("a.x", "1", first.id), ("b", "2", first.id),
            ("b", "2", second.id),
        ]  # fmt: skip
        assert (every[2].step, every[2].deadline, every[2].began_at) == ("w", deadline, 30)
        assert (every[3].kind, every[3].queue, every[3].deadline) == ("other", "q", None)
        for size in (1, 2, 3):
            found: list[WaitRecord] = []
            after: tuple[str, str, str] | None = None
            while page := await store.events.waits(limit=size, after=after):
                found += page
                after = (page[-1].name, page[-1].key, page[-1].job_id)
            assert found == every
        assert await store.events.waits(name="b", limit=10) == every[2:]
        assert await store.events.waits(name="b", limit=1) == every[2:3]
        assert await store.events.waits(name="a", key="1", limit=10) == every[:1]
        assert await store.events.waits(name="a", key="2", limit=10) == []
        assert await store.events.waits(job_id=first.id, limit=10) == every[1:3]
        assert await store.events.waits(job_id="01ARZ3NDEKTSV4RRFFQ69G5FAV", limit=10) == []
