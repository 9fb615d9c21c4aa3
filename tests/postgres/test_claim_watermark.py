"""Claim watermarks: skip dead index entries, miss no job, and return to the front."""

from collections.abc import Iterator, Sequence

import pytest

from forge_jobs.backends.postgres import claim_watermark
from forge_jobs.backends.postgres.claim_watermark import (
    EARLY_RESET_S,
    LONG_SEARCH,
    RESET_S,
    ClaimWatermarks,
)
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.job import ClaimedJob, NewJob
from forge_jobs.core.outcome import Dead
from forge_jobs.core.selection import BulkAction, Filter, Selection
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.worker import Process
from tests.postgres.schemas import Schemas

WANT = [Want("q", 10)]
FAR = LONG_SEARCH * 100


def claimed(priority: int, run_at: int, key: int) -> ClaimedJob:
    return ClaimedJob(key, 1, "work", "q", b"{}", 1, 5, 0, run_at, True, priority)


def exchanged(watermarks: ClaimWatermarks, jobs: list[ClaimedJob], walked: int) -> None:
    watermarks.update(Exchange(owner=1, number=1, want=[Want("q", len(jobs))]), jobs, walked)


def after_long_search(clock: MovableClock) -> ClaimWatermarks:
    """Watermarks after one long search from the front; a second one activates them."""
    watermarks = ClaimWatermarks(clock)
    exchanged(watermarks, [claimed(0, 1, 1)], FAR)
    assert watermarks.positions(WANT) == {}
    return watermarks


def test_nothing_is_remembered_while_searches_are_short() -> None:
    watermarks = ClaimWatermarks(MovableClock())
    exchanged(watermarks, [claimed(0, 5, 5)], 100)
    assert watermarks.positions(WANT) == {}


def test_after_a_long_search_the_furthest_position_of_each_priority_counts() -> None:
    watermarks = after_long_search(MovableClock())
    exchanged(watermarks, [claimed(1, 9, 2), claimed(0, 5, 7), claimed(0, 5, 6)], FAR)
    assert watermarks.positions(WANT) == {"q": [(0, 5, 7), (1, 9, 2)]}
    exchanged(watermarks, [claimed(0, 8, 9)], 100)
    assert watermarks.positions([*WANT, Want("other", 1)]) == {"q": [(0, 8, 9), (1, 9, 2)]}


def test_a_search_starts_at_the_front_every_two_seconds() -> None:
    clock = MovableClock()
    watermarks = after_long_search(clock)
    exchanged(watermarks, [claimed(0, 5, 7)], FAR)
    clock.advance(RESET_S)
    assert watermarks.positions(WANT) == {}
    exchanged(watermarks, [claimed(0, 3, 3)], FAR)
    assert watermarks.positions(WANT) == {"q": [(0, 3, 3)]}
    clock.advance(RESET_S)
    assert watermarks.positions(WANT) == {}
    exchanged(watermarks, [claimed(0, 4, 4)], 100)
    assert watermarks.positions(WANT) == {}


def test_a_search_that_found_too_few_shortens_the_time_to_the_next_reset() -> None:
    clock = MovableClock()
    watermarks = after_long_search(clock)
    exchanged(watermarks, [claimed(0, 5, 7)], FAR)
    watermarks.update(Exchange(owner=1, number=2, want=WANT), [claimed(0, 6, 8)], 1)
    assert watermarks.positions(WANT) == {"q": [(0, 6, 8)]}
    clock.advance(EARLY_RESET_S)
    assert watermarks.positions(WANT) == {}


def test_a_queue_with_new_pending_jobs_is_searched_from_the_front() -> None:
    watermarks = after_long_search(MovableClock())
    exchanged(watermarks, [claimed(0, 5, 7)], FAR)
    watermarks.forget(["other"])
    assert watermarks.positions(WANT) == {"q": [(0, 5, 7)]}
    watermarks.forget(["q"])
    assert watermarks.positions(WANT) == {}


@pytest.fixture
def unused(schemas: Schemas) -> Iterator[str]:
    """A schema whose index has no dead entries of removed jobs: those would be counted too."""
    name = schemas.unused()
    yield name
    schemas.give_back(name)


async def test_the_reply_counts_the_index_entries_that_a_search_read(
    unused: str, schemas: Schemas
) -> None:
    """Those it claimed, and the dead entries of earlier claims before them."""
    store = PostgresStore(schemas.url(unused))
    await store.open()
    me = NewProcess(host_id="h", label="l", queues=("q",), pid=1, hostname="b", lease_s=600.0)
    owner = await store.processes.register(me)
    await store.jobs.enqueue([NewJob(kind="work", queue="q")] * 40)
    walked_by_exchange: list[int] = []
    watermarks = store.jobs._exchanger.watermarks
    update = watermarks.update

    def recording(request: Exchange, claims: Sequence[ClaimedJob], walked: int) -> None:
        walked_by_exchange.append(walked)
        update(request, claims, walked)

    watermarks.update = recording
    for number, free in enumerate((10, 30), 1):
        await store.jobs.exchange(Exchange(owner=owner, number=number, want=[Want("q", free)]))
    await store.close()
    assert walked_by_exchange == [10, 40]
    assert watermarks.positions([Want("q", 1)]) == {}


async def test_a_search_from_a_watermark_keeps_the_claim_order(store: PostgresStore) -> None:
    me = NewProcess(host_id="h", label="l", queues=("q",), pid=1, hostname="b", lease_s=600.0)
    owner = await store.processes.register(me)
    plan = [(2, 10), (0, 30), (0, 20), (0, 5), (-1, 40), (1, 1), (2, 50), (3, 7)]
    stored = await store.jobs.enqueue(
        [NewJob(kind=f"p{p}at{at}", queue="q", priority=p, run_at=at) for p, at in plan]
    )
    first = {
        job.kind: answer.key
        for job, answer in zip(plan, stored, strict=True)
        for job in [NewJob(kind=f"p{job[0]}at{job[1]}", queue="q")]
    }
    watermarks = store.jobs._exchanger.watermarks
    watermarks._active = True
    watermarks._reset_at = float("inf")
    watermarks._watermarks = {"q": {0: (0, 20, first["p0at20"]), 2: (2, 11, 0)}}
    answer = await store.jobs.exchange(Exchange(owner=owner, number=1, want=[Want("q", 3, 3)]))
    # 0 at 5 and 2 at 10 are below their watermarks; the others are claimed in order.
    assert [job.kind for job in answer.claims] == [
        "p-1at40", "p0at20", "p0at30", "p1at1", "p2at50", "p3at7",
    ]  # fmt: skip
    assert [job.started for job in answer.claims] == [True] * 3 + [False] * 3
    watermarks._watermarks = {}
    answer = await store.jobs.exchange(Exchange(owner=owner, number=2, want=[Want("q", 9)]))
    assert [job.kind for job in answer.claims] == ["p0at5", "p2at10"]


async def test_jobs_that_an_operator_retries_below_a_watermark_are_found_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen as a failure of the conformance suite in a schema with many dead index entries."""
    monkeypatch.setattr(claim_watermark, "LONG_SEARCH", -1)
    monkeypatch.setattr(claim_watermark, "LONG_SEARCH_PER_JOB", 0)
    clock = MovableClock()
    store = PostgresStore(url, clock)
    await store.open()
    worker = await Process.register(store, clock)
    for n in range(6):
        await store.jobs.enqueue([NewJob(kind=f"k{n}", queue="q")])
        await worker.finish(await worker.claim_one(), Dead("x"))
    await store.jobs.act(BulkAction.RETRY, Selection(filter=Filter()), limit=100)
    assert [job.kind for job in await worker.claim(free=9)] == [f"k{n}" for n in range(6)]
    await store.close()
