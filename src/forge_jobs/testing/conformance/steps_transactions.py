"""Events and steps inside a user's own transaction."""

import contextlib

import pytest

from forge_jobs.core.errors import Conflict, LeaseLost
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import StepKind
from forge_jobs.store.jobs import Verdict
from forge_jobs.store.store import Store

from .fixtures import OpenTransaction
from .step_requests import (
    check_wait,
    event,
    history,
    kinds,
    status_of,
    step,
    stored,
    suspended,
    taken,
    verdicts,
    wait,
)
from .worker import Process, claim_of, enqueue


class _RolledBackError(Exception):
    """Ends a transaction without a commit."""


@pytest.mark.asyncio
class TestStepTransactions:
    """``send_in`` and ``store_step_in``."""

    async def test_an_event_is_sent_by_the_commit(
        self, store: Store, worker: Process, open_transaction: OpenTransaction | None
    ) -> None:
        begin = _begin(open_transaction)
        answer = await suspended(store, worker)
        async with begin(store) as transaction:
            [sent] = await store.asend_in(transaction, [event(payload=b"5")])
            assert not sent.duplicate
            assert await status_of(store, answer.id) is JobStatus.SUSPENDED
        await worker.exchange()
        assert await status_of(store, answer.id) is JobStatus.PENDING
        found = (await history(store, answer.id))["wait"]
        assert bytes(taken(found).payload) == b"5"
        [listed] = await store.events.page(limit=10)
        assert listed.seq is not None

    async def test_a_wait_takes_an_event_that_was_committed_before(
        self, store: Store, worker: Process, open_transaction: OpenTransaction | None
    ) -> None:
        begin = _begin(open_transaction)
        await enqueue(store)
        job = await worker.claim_one()
        async with begin(store) as transaction:
            await store.asend_in(transaction, [event(payload=b"1"), event(payload=b"2")])
        reply = await check_wait(worker, job, wait())
        assert bytes(taken(reply.record).payload) == b"1"

    async def test_a_rolled_back_event_does_not_exist(
        self, store: Store, worker: Process, open_transaction: OpenTransaction | None
    ) -> None:
        begin = _begin(open_transaction)
        answer = await suspended(store, worker)
        with contextlib.suppress(_RolledBackError):
            async with begin(store) as transaction:
                await store.asend_in(transaction, [event(dedupe_key="k")])
                raise _RolledBackError
        await worker.exchange()
        assert await status_of(store, answer.id) is JobStatus.SUSPENDED
        assert await store.events.page(limit=10) == []
        [again] = await store.events.send([event(dedupe_key="k")])
        assert (again.duplicate, again.resumed) == (False, 1)

    async def test_dedupe_keys_hold_in_transactions(
        self, store: Store, worker: Process, open_transaction: OpenTransaction | None
    ) -> None:
        begin = _begin(open_transaction)
        await store.events.send([event(dedupe_key="a")])
        once = [event(dedupe_key="a"), event(dedupe_key="b"), event(dedupe_key="b")]
        async with begin(store) as transaction:
            answers = await store.asend_in(transaction, once)
        assert [answer.duplicate for answer in answers] == [True, False, True]
        await worker.exchange()
        assert len(await store.events.page(limit=10)) == 2

    async def test_a_step_is_stored_by_the_commit(
        self, store: Store, worker: Process, open_transaction: OpenTransaction | None
    ) -> None:
        begin = _begin(open_transaction)
        answer = await enqueue(store)
        job = await worker.claim_one()
        debit = step(job, "debit", b'{"left":3}', fingerprint=9)
        async with begin(store) as transaction:
            await store.astore_step_in(transaction, worker.key, debit)
            assert await history(store, answer.id) == {}
        assert await history(store, answer.id) == {"debit": stored(debit)}
        assert await verdicts(worker, step(job, "debit")) == [Verdict.ALREADY]
        await worker.exchange(release=[claim_of(job)])
        again = await worker.claim_one()
        assert again.steps is not None
        assert again.steps.records == (stored(debit),)

    async def test_a_rolled_back_step_does_not_exist(
        self, store: Store, worker: Process, open_transaction: OpenTransaction | None
    ) -> None:
        begin = _begin(open_transaction)
        answer = await enqueue(store)
        job = await worker.claim_one()
        with contextlib.suppress(_RolledBackError):
            async with begin(store) as transaction:
                await store.astore_step_in(transaction, worker.key, step(job, "debit"))
                raise _RolledBackError
        assert await history(store, answer.id) == {}
        assert await verdicts(worker, step(job, "debit")) == [Verdict.APPLIED]

    @pytest.mark.parametrize("how", ["released", "other owner", "finished"])
    async def test_a_stale_claim_is_refused(
        self, store: Store, worker: Process, open_transaction: OpenTransaction | None, how: str
    ) -> None:
        begin = _begin(open_transaction)
        answer = await enqueue(store)
        job = await worker.claim_one()
        owner = worker.key
        if how == "released":
            await worker.exchange(release=[claim_of(job)])
        elif how == "finished":
            await worker.send_finishes(worker.build_finish(job))
        else:
            owner += 1
        with pytest.raises(LeaseLost):
            async with begin(store) as transaction:
                await store.astore_step_in(transaction, owner, step(job, "debit"))
        assert await history(store, answer.id) == {}

    async def test_a_name_that_is_stored_is_refused(
        self, store: Store, worker: Process, open_transaction: OpenTransaction | None
    ) -> None:
        begin = _begin(open_transaction)
        answer = await enqueue(store)
        job = await worker.claim_one()
        await verdicts(worker, step(job, "debit", b"1"))
        with pytest.raises(Conflict):
            async with begin(store) as transaction:
                await store.astore_step_in(transaction, worker.key, step(job, "debit", b"2"))
        assert (await history(store, answer.id))["debit"].value == b"1"
        assert await kinds(store, answer.id) == {"debit": StepKind.STEP}

    async def test_a_refused_step_leaves_nothing_of_its_transaction(
        self, store: Store, worker: Process, open_transaction: OpenTransaction | None
    ) -> None:
        """The one that joined it first is not stored either."""
        begin = _begin(open_transaction)
        answer = await enqueue(store)
        job = await worker.claim_one()
        await verdicts(worker, step(job, "debit", b"1"))
        taken_name, first = step(job, "debit", b"2"), step(job, "first")
        with contextlib.suppress(Conflict):
            async with begin(store) as transaction:
                await store.asend_in(transaction, [event()])
                await store.astore_step_in(transaction, worker.key, first)
                await store.astore_step_in(transaction, worker.key, taken_name)
        await worker.exchange()
        assert list(await history(store, answer.id)) == ["debit"]
        assert await store.events.page(limit=10) == []


def _begin(open_transaction: OpenTransaction | None) -> OpenTransaction:
    if open_transaction is None:
        pytest.skip("the store joins no transaction of a user, or the module opens none")
    return open_transaction
