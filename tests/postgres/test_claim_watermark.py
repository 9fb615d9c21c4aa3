"""Claims begin above a dead tail, find everything all the same, and return to the front."""

from collections.abc import Iterator, Sequence

import pytest

from forge_jobs.backends.postgres.claim_watermark import MANY, SHORT_S, WIDEN_S, ClaimWatermarks
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.job import ClaimedJob, NewJob
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess
from forge_jobs.testing.clock import MovableClock
from tests.postgres.schemas import Schemas

WANT = [Want("q", 10)]
FAR = MANY * 100


def claimed(priority: int, run_at: int, key: int) -> ClaimedJob:
    return ClaimedJob(key, 1, "work", "q", b"{}", 1, 5, 0, run_at, True, priority)


def round_(floors: ClaimWatermarks, jobs: list[ClaimedJob], walked: int) -> None:
    floors.learn(Exchange(owner=1, number=1, want=[Want("q", len(jobs))]), jobs, walked)


def armed(clock: MovableClock) -> ClaimWatermarks:
    """After a long search from the front; the next one decides."""
    floors = ClaimWatermarks(clock)
    round_(floors, [claimed(0, 1, 1)], FAR)
    assert floors.of(WANT) == {}
    return floors


def test_nothing_is_remembered_while_searches_are_short() -> None:
    floors = ClaimWatermarks(MovableClock())
    round_(floors, [claimed(0, 5, 5)], 100)
    assert floors.of(WANT) == {}


def test_after_a_long_search_the_furthest_position_of_each_priority_counts() -> None:
    floors = armed(MovableClock())
    round_(floors, [claimed(1, 9, 2), claimed(0, 5, 7), claimed(0, 5, 6)], FAR)
    assert floors.of(WANT) == {"q": [(0, 5, 7), (1, 9, 2)]}
    round_(floors, [claimed(0, 8, 9)], 100)
    assert floors.of([*WANT, Want("other", 1)]) == {"q": [(0, 8, 9), (1, 9, 2)]}


def test_every_two_seconds_it_looks_from_the_front_again() -> None:
    clock = MovableClock()
    floors = armed(clock)
    round_(floors, [claimed(0, 5, 7)], FAR)
    clock.advance(WIDEN_S)
    assert floors.of(WANT) == {}
    round_(floors, [claimed(0, 3, 3)], FAR)
    assert floors.of(WANT) == {"q": [(0, 3, 3)]}
    clock.advance(WIDEN_S)
    assert floors.of(WANT) == {}
    round_(floors, [claimed(0, 4, 4)], 100)
    assert floors.of(WANT) == {}


def test_after_a_search_that_found_too_few_it_looks_from_the_front_soon() -> None:
    clock = MovableClock()
    floors = armed(clock)
    round_(floors, [claimed(0, 5, 7)], FAR)
    floors.learn(Exchange(owner=1, number=2, want=WANT), [claimed(0, 6, 8)], 1)
    assert floors.of(WANT) == {"q": [(0, 6, 8)]}
    clock.advance(SHORT_S)
    assert floors.of(WANT) == {}


def test_what_is_put_back_is_looked_for_at_once() -> None:
    floors = armed(MovableClock())
    round_(floors, [claimed(0, 5, 7)], FAR)
    floors.forget(["other"])
    assert floors.of(WANT) == {"q": [(0, 5, 7)]}
    floors.forget(["q"])
    assert floors.of(WANT) == {}


@pytest.fixture
def unused(schemas: Schemas) -> Iterator[str]:
    """A schema whose index has no traces of removed jobs: those are walked over and counted."""
    name = schemas.unused()
    yield name
    schemas.give_back(name)


async def test_the_server_tells_how_many_entries_a_search_went_over(
    unused: str, schemas: Schemas
) -> None:
    """Those it claimed, and those that earlier claims have left in front of them."""
    store = PostgresStore(schemas.url(unused))
    await store.open()
    me = NewProcess(host_id="h", label="l", queues=("q",), pid=1, hostname="b", lease_s=600.0)
    owner = await store.processes.register(me)
    await store.jobs.enqueue([NewJob(kind="work", queue="q")] * 40)
    told: list[int] = []
    floors = store.jobs._exchanger.floors
    learn = floors.learn

    def listening(request: Exchange, claims: Sequence[ClaimedJob], walked: int) -> None:
        told.append(walked)
        learn(request, claims, walked)

    floors.learn = listening
    for number, free in enumerate((10, 30), 1):
        await store.jobs.exchange(Exchange(owner=owner, number=number, want=[Want("q", free)]))
    await store.close()
    assert told == [10, 40]
    assert floors.of([Want("q", 1)]) == {}


async def test_a_search_above_a_floor_keeps_the_order(store: PostgresStore) -> None:
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
    floors = store.jobs._exchanger.floors
    floors._armed = True
    floors._widen_at = float("inf")
    floors._known = {"q": {0: (0, 20, first["p0at20"]), 2: (2, 11, 0)}}
    answer = await store.jobs.exchange(Exchange(owner=owner, number=1, want=[Want("q", 3, 3)]))
    # 0 at 5 and 2 at 10 lie below their floors; everything else comes in its order.
    assert [job.kind for job in answer.claims] == [
        "p-1at40", "p0at20", "p0at30", "p1at1", "p2at50", "p3at7",
    ]  # fmt: skip
    assert [job.started for job in answer.claims] == [True] * 3 + [False] * 3
    floors._known = {}
    answer = await store.jobs.exchange(Exchange(owner=owner, number=2, want=[Want("q", 9)]))
    assert [job.kind for job in answer.claims] == ["p0at5", "p2at10"]
