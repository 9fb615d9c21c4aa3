"""Token buckets of the schedule contract."""

import asyncio

import pytest

from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.token_bucket import Grant, TokenBucket
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock


@pytest.mark.asyncio
class TestTokenBuckets:
    """``take``, ``drain`` and the definition of token buckets."""

    async def test_a_new_bucket_is_full(self, store: Store, clock: MovableClock) -> None:
        bucket = await store.token_buckets.ensure("smtp", capacity=5, refill_per_s=2)
        full = TokenBucket(scope="smtp", capacity=5, refill_per_s=2, tokens=5, at=clock.now())
        assert bucket == full
        again = await store.token_buckets.ensure("smtp", capacity=99, refill_per_s=99)
        assert again == full
        assert await store.token_buckets.all() == [full]

    async def test_it_grants_exactly_what_it_holds(self, store: Store, clock: MovableClock) -> None:
        await store.token_buckets.ensure("smtp", capacity=20, refill_per_s=1)
        grants = await asyncio.gather(*(store.token_buckets.take("smtp", 1) for _ in range(50)))
        assert sum(grant.granted for grant in grants) == 20
        refused = next(grant for grant in grants if not grant.granted)
        assert refused.retry_s == 1.0

    async def test_a_part_is_granted(self, store: Store, clock: MovableClock) -> None:
        await store.token_buckets.ensure("smtp", capacity=3, refill_per_s=0.5)
        assert await store.token_buckets.take("smtp", 2) == Grant(2)
        assert await store.token_buckets.take("smtp", 5) == Grant(1, 2.0)

    async def test_a_permit_is_there_when_it_was_promised(
        self, store: Store, clock: MovableClock
    ) -> None:
        for rate in (0.1, 1 / 3, 3.0, 7.0, 1_000.0):
            scope = f"rate {rate}"
            await store.token_buckets.ensure(scope, capacity=2, refill_per_s=rate)
            await store.token_buckets.take(scope, 2)
            for _ in range(5):
                refused = await store.token_buckets.take(scope, 1)
                assert refused.granted == 0, scope
                assert refused.retry_s is not None, scope
                clock.advance(refused.retry_s)
                assert (await store.token_buckets.take(scope, 1)).granted == 1, scope

    async def test_it_never_holds_more_than_its_capacity(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.token_buckets.ensure("smtp", capacity=3, refill_per_s=10)
        clock.advance(3_600)
        assert (await store.token_buckets.take("smtp", 100)).granted == 3

    async def test_without_refill_nothing_is_promised(self, store: Store) -> None:
        await store.token_buckets.ensure("smtp", capacity=1, refill_per_s=0)
        assert await store.token_buckets.take("smtp", 1) == Grant(1)
        assert await store.token_buckets.take("smtp", 1) == Grant(0)

    async def test_drain_empties_it_now(self, store: Store, clock: MovableClock) -> None:
        await store.token_buckets.ensure("smtp", capacity=5, refill_per_s=1)
        await store.token_buckets.drain("smtp")
        assert (await store.token_buckets.take("smtp", 1)).granted == 0
        clock.advance(2)
        assert (await store.token_buckets.take("smtp", 9)).granted == 2

    async def test_time_that_runs_backwards_refills_nothing(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.token_buckets.ensure("smtp", capacity=2, refill_per_s=1)
        await store.token_buckets.take("smtp", 2)
        clock.jump(-30)
        assert (await store.token_buckets.take("smtp", 1)).granted == 0
        clock.jump(30)
        assert (await store.token_buckets.take("smtp", 1)).granted == 0
        clock.advance(1)
        assert (await store.token_buckets.take("smtp", 5)).granted == 1

    async def test_time_that_ran_backwards_has_to_pass_again(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.token_buckets.ensure("smtp", capacity=1, refill_per_s=1)
        await store.token_buckets.take("smtp", 1)
        clock.jump(-30)
        assert (await store.token_buckets.take("smtp", 1)).retry_s == 31.0

    @pytest.mark.parametrize(
        ("capacity", "refill_per_s"),
        [(0, 1), (0.5, 1), (-1, 1), (5, -1), (float("nan"), 1), (5, float("nan")), (1e12, 1)],
    )
    async def test_a_bucket_that_could_give_nothing_is_refused(
        self, store: Store, capacity: float, refill_per_s: float
    ) -> None:
        for make in (store.token_buckets.ensure, store.token_buckets.put):
            with pytest.raises(BadOption, match="smtp"):
                await make("smtp", capacity=capacity, refill_per_s=refill_per_s)
        assert await store.token_buckets.all() == []

    async def test_a_change_keeps_what_is_in_it(self, store: Store, clock: MovableClock) -> None:
        await store.token_buckets.put("smtp", capacity=10, refill_per_s=1)
        await store.token_buckets.take("smtp", 4)
        wider = await store.token_buckets.put("smtp", capacity=100, refill_per_s=2)
        assert (wider.capacity, wider.refill_per_s, wider.tokens) == (100, 2, 6)
        narrower = await store.token_buckets.put("smtp", capacity=3, refill_per_s=2)
        assert narrower.tokens == 3
        assert (await store.token_buckets.take("smtp", 9)).granted == 3

    async def test_buckets_are_listed_as_of_now(self, store: Store, clock: MovableClock) -> None:
        await store.token_buckets.ensure("b", capacity=5, refill_per_s=1)
        await store.token_buckets.ensure("a", capacity=5, refill_per_s=1)
        await store.token_buckets.drain("b")
        clock.advance(2)
        seen = [(bucket.scope, bucket.tokens) for bucket in await store.token_buckets.all()]
        assert seen == [("a", 5), ("b", pytest.approx(2))]

    async def test_A5_an_unknown_scope_is_an_error(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await store.token_buckets.take("none", 1)
        with pytest.raises(NotFound):
            await store.token_buckets.drain("none")
