"""Steps of running jobs: the first write of a name stays, only a current claim writes, and a claim
brings what is stored."""

import pytest

from forge_jobs.core.decide import StepProgress
from forge_jobs.core.job import NewJob
from forge_jobs.core.outcome import Failed
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import MAX_CLAIMED_BYTES, MAX_CLAIMED_STEPS, ClaimedSteps, StepKind
from forge_jobs.store.jobs import StepAnswer, Verdict, Want
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .step_requests import HOSTILE, history, step, stored, verdicts, write_steps
from .worker import LEASE_S, Process, claim_of, enqueue, new_job, record

APPLIED, ALREADY, STALE = Verdict.APPLIED, Verdict.ALREADY, Verdict.STALE


@pytest.mark.asyncio
class TestSteps:
    """``Exchange.steps``."""

    async def test_a_step_is_stored_as_it_was_sent(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        assert job.steps is None
        sent = [
            step(job, "charge", b'{"id":"\xc3\xa9"}', fingerprint=(1 << 63) - 1),
            step(job, "none", None, began_at=5, ended_at=6),
            step(job, "card", b'["CardDeclined"]', kind=StepKind.ERROR, fingerprint=0),
        ]
        answers = await write_steps(worker, *sent)
        assert answers == [StepAnswer(APPLIED, stored(one)) for one in sent]
        assert await history(store, answer.id) == {one.name: stored(one) for one in sent}

    async def test_names_are_ordered_by_code_point_and_kept(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        names = [*HOSTILE, "charge", "charge#2", "charge\x1fb", "charge\x1f" + "k" * 512]
        assert set(await verdicts(worker, *(step(job, name) for name in names))) == {APPLIED}
        assert list(await history(store, answer.id)) == sorted(names)
        assert await verdicts(worker, *(step(job, name) for name in names)) == [ALREADY] * len(
            names
        )

    async def test_the_first_write_of_a_name_stays(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        first, second = step(job, "a", b"1"), step(job, "a", b"2", began_at=11)
        assert await write_steps(worker, first, second) == [
            StepAnswer(APPLIED, stored(first)),
            StepAnswer(ALREADY, stored(first)),
        ]
        assert await write_steps(worker, second) == [StepAnswer(ALREADY, stored(first))]
        assert await history(store, answer.id) == {"a": stored(first)}

    async def test_a_repeated_run_is_answered_with_the_step_of_the_earlier_one(
        self, store: Store, worker: Process
    ) -> None:
        await enqueue(store)
        job = await worker.claim_one()
        first = step(job, "a", b"1")
        await write_steps(worker, first)
        await worker.exchange(release=[claim_of(job)])
        again = await worker.claim_one()
        assert again.epoch > job.epoch
        assert await write_steps(worker, step(again, "a", b"2")) == [
            StepAnswer(ALREADY, stored(first))
        ]

    async def test_two_jobs_have_histories_of_their_own(
        self, store: Store, worker: Process
    ) -> None:
        answers = [await enqueue(store), await enqueue(store)]
        jobs = await worker.claim(free=2)
        for number, job in enumerate(jobs):
            assert await verdicts(worker, step(job, "a", b"%d" % number)) == [APPLIED]
        values = [(await history(store, answer.id))["a"].value for answer in answers]
        assert values == [b"0", b"1"]

    async def test_a_stale_claim_stores_nothing(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        other = await Process.register(store, clock, host_id="host-2")
        assert await verdicts(other, step(job, "a")) == [STALE]
        await worker.exchange(release=[claim_of(job)])
        assert await verdicts(worker, step(job, "a")) == [STALE]
        again = await worker.claim_one()
        assert await verdicts(worker, step(job, "a")) == [STALE]
        clock.advance(LEASE_S + 1)
        await store.jobs.reap(crash_note="died", limit=10)
        assert await verdicts(worker, step(again, "a")) == [STALE]
        assert await history(store, answer.id) == {}

    async def test_a_finished_claim_stores_nothing(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await worker.send_finishes(worker.build_finish(job))
        assert await verdicts(worker, step(job, "a")) == [STALE]
        assert await history(store, answer.id) == {}

    async def test_an_expired_lease_alone_does_not_make_a_step_stale(
        self, store: Store, clock: MovableClock, worker: Process
    ) -> None:
        await enqueue(store)
        job = await worker.claim_one()
        clock.advance(LEASE_S + 1)
        reply = await worker.exchange(steps=[step(job, "a")])
        assert not reply.alive
        assert [answer.verdict for answer in reply.steps] == [APPLIED]

    async def test_steps_and_the_finish_of_one_exchange_are_both_applied(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        reply = await worker.exchange(
            steps=[step(job, "last")], finish=[worker.build_finish(job)], want=[Want("q", 1)]
        )
        assert [one.verdict for one in reply.steps] == [APPLIED]
        assert list(reply.verdicts) == [APPLIED]
        assert (await record(store, answer.id)).status is JobStatus.DONE
        assert list(await history(store, answer.id)) == ["last"]

    async def test_many_steps_of_many_jobs_in_one_exchange(
        self, store: Store, worker: Process
    ) -> None:
        answers = await store.jobs.enqueue([_job_of(number) for number in range(50)])
        jobs = await worker.claim(free=50)
        sent = [step(job, f"s{n}", b"%d" % job.key) for n in range(20) for job in jobs]
        assert await verdicts(worker, *sent) == [APPLIED] * 1_000
        for answer in answers[::10]:
            found = await history(store, answer.id)
            assert len(found) == 20
            assert {one.value for one in found.values()} == {b"%d" % answer.key}

    async def test_a_large_value_is_stored(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        value = b'"' + b"x" * (256 << 10) + b'"'
        assert await verdicts(worker, step(job, "large", value)) == [APPLIED]
        found = (await history(store, answer.id))["large"]
        assert (found.value, found.size) == (value, len(value))


def _job_of(number: int) -> NewJob:
    return new_job(payload=b"[%d]" % number)


@pytest.mark.asyncio
class TestClaimedSteps:
    """``ClaimedJob.steps`` and ``StepStore.page``."""

    async def test_a_job_without_steps_is_claimed_without_a_history(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        await worker.exchange(release=[claim_of(job)])
        assert (await worker.claim_one()).steps is None
        assert not (await record(store, answer.id)).has_steps
        assert await store.steps.page(answer.id) == []
        assert await store.steps.page("01ARZ3NDEKTSV4RRFFQ69G5FAV") == []

    async def test_a_claim_after_a_failure_brings_the_steps_in_the_order_of_names(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        sent = [step(job, name, name.encode()) for name in ("b", "a#2", "a", "é")]
        await write_steps(worker, *sent)
        await worker.finish(job, Failed("x"), progress=StepProgress(stored=False))
        assert (await record(store, answer.id)).has_steps
        await _run_now(store, answer.id)
        again = await worker.claim_one()
        by_name = {one.name: stored(one) for one in sent}
        assert again.steps == ClaimedSteps(tuple(by_name[name] for name in sorted(by_name)))

    @pytest.mark.parametrize("how", ["release", "reap", "deregister"])
    async def test_a_run_that_ended_without_a_finish_leaves_its_steps(
        self, store: Store, clock: MovableClock, worker: Process, how: str
    ) -> None:
        answer = await enqueue(store, expires_s=3_600.0)
        job = await worker.claim_one()
        sent = step(job, "a")
        await write_steps(worker, sent)
        if how == "release":
            await worker.exchange(release=[claim_of(job)])
        elif how == "deregister":
            await store.processes.deregister(worker.key)
            worker = await Process.register(store, clock, host_id="host-2")
        else:
            clock.advance(LEASE_S + 1)
            await store.jobs.reap(crash_note="died", limit=10)
            worker = await Process.register(store, clock, host_id="host-2")
        found = await record(store, answer.id)
        assert (found.status, found.has_steps, found.expires_at) == (JobStatus.PENDING, True, None)
        assert (await worker.claim_one()).steps == ClaimedSteps((stored(sent),))

    async def test_at_most_a_thousand_steps_come_with_a_claim(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        job = await worker.claim_one()
        names = [f"s{number:05}" for number in range(MAX_CLAIMED_STEPS + 5)]
        await write_steps(worker, *(step(job, name, b"0") for name in reversed(names)))
        await worker.exchange(release=[claim_of(job)])
        history = (await worker.claim_one()).steps
        assert history is not None
        assert history.more
        assert [one.name for one in history.records] == names[:MAX_CLAIMED_STEPS]
        rest = await store.steps.page(answer.id, after=history.records[-1].name, limit=3)
        assert [one.name for one in rest] == names[MAX_CLAIMED_STEPS : MAX_CLAIMED_STEPS + 3]
        assert await store.steps.page(answer.id, after=names[-1]) == []

    async def test_exactly_a_thousand_steps_are_all(self, store: Store, worker: Process) -> None:
        await enqueue(store)
        job = await worker.claim_one()
        await write_steps(
            worker, *(step(job, f"s{number}", b"0") for number in range(MAX_CLAIMED_STEPS))
        )
        await worker.exchange(release=[claim_of(job)])
        history = (await worker.claim_one()).steps
        assert history is not None
        assert (len(history.records), history.more) == (MAX_CLAIMED_STEPS, False)

    @pytest.mark.parametrize(
        ("sizes", "brought"),
        [
            ((MAX_CLAIMED_BYTES // 2, MAX_CLAIMED_BYTES // 2, 2), 2),
            ((2, MAX_CLAIMED_BYTES // 2, MAX_CLAIMED_BYTES // 2), 2),
            ((MAX_CLAIMED_BYTES + 10, 2), 1),
        ],
    )
    async def test_at_most_a_mebibyte_of_values_comes_with_a_claim(
        self, store: Store, worker: Process, sizes: tuple[int, ...], brought: int
    ) -> None:
        await enqueue(store)
        job = await worker.claim_one()
        for number, size in enumerate(sizes):
            await write_steps(worker, step(job, f"s{number}", b"1" * size))
        await worker.exchange(release=[claim_of(job)])
        history = (await worker.claim_one()).steps
        assert history is not None
        assert [one.size for one in history.records] == list(sizes[:brought])
        assert history.more

    async def test_pages_by_name_and_without_values(self, store: Store, worker: Process) -> None:
        answer, other = await enqueue(store), await enqueue(store)
        for job in await worker.claim(free=2):
            await write_steps(worker, *(step(job, name, b"12") for name in "dbca"))
        page = await store.steps.page(answer.id, values=False)
        assert [(one.name, one.value, one.size) for one in page] == [
            (name, None, 2) for name in "abcd"
        ]
        chosen = await store.steps.page(other.id, names=["c", "a", "x"])
        assert [(one.name, one.value) for one in chosen] == [("a", b"12"), ("c", b"12")]
        assert [one.name for one in await store.steps.page(answer.id, limit=2)] == ["a", "b"]


async def _run_now(store: Store, job_id: str) -> None:
    await store.jobs.act(BulkAction.RUN_NOW, Selection(ids=(job_id,)), limit=1)
