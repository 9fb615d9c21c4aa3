"""Claim turns: which process claims a single new job first."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from forge_jobs.backends.postgres.notify import claim_turns
from forge_jobs.backends.postgres.notify.claim_turns import ClaimTurns
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.job import NewJob
from forge_jobs.store.processes import NewProcess, ProcessRecord, Share

from .test_wake import SOON_S, listening


def process(key: int, *, slots: int = 5, quiet: bool = False) -> ProcessRecord:
    return ProcessRecord(
        key=key, host_id=str(key), label="", queues=("q",), pid=1, hostname="", version="",
        started_at=0, beat_at=0, lease_s=15.0, running=0, slots={}, quiet=quiet,
        shares={"q": Share(slots, slots, 1)},
    )  # fmt: skip


def cluster(*own: int, of: Sequence[ProcessRecord]) -> list[ClaimTurns]:
    """The turns as each of these processes computes them."""
    made: list[ClaimTurns] = []
    for key in own:
        one = ClaimTurns()
        one.add_process(key)
        one.update(of)
        made.append(one)
    return made


def test_all_choose_the_same_process_and_each_is_chosen_equally_often() -> None:
    everybody = cluster(7, 9, 4, of=[process(9), process(4), process(7)])
    first = Counter[int]()
    for number in range(3_000):
        [chosen] = [n for n, one in enumerate(everybody) if not one.wait_s("q", number)]
        first[chosen] += 1
    assert set(first.values()) == {1_000}


@pytest.mark.parametrize(
    "other", [process(9, slots=0), process(9, quiet=True)], ids=["no slots", "quiet"]
)
def test_a_process_that_cannot_take_the_job_is_not_chosen(other: ProcessRecord) -> None:
    [one] = cluster(7, of=[process(7), other])
    assert not any(one.wait_s("q", number) for number in range(10))


def test_a_process_that_knows_no_turns_claims_at_once() -> None:
    stranger, *_ = cluster(5, of=[process(7), process(9)])
    assert not any(stranger.wait_s("q", number) for number in range(10))
    assert not any(ClaimTurns().wait_s("q", number) for number in range(10))


def test_the_notification_of_one_job_is_decoded() -> None:
    assert claim_turns.decode(claim_turns.encode("a.b-c_d", 0.25)) == ("a.b-c_d", 250_000)
    assert claim_turns.decode("a,b") is None
    assert claim_turns.decode("*") is None


class _FixedEntropy:
    """Entropy that always returns the same number."""

    def __init__(self, roll: float) -> None:
        self._roll = roll

    def roll(self) -> float:
        return self._roll

    def bits(self, count: int) -> int:
        return 1


@pytest.mark.parametrize("chosen", [0, 1])
async def test_the_others_are_notified_of_a_single_job_after_the_chosen_process(
    store: PostgresStore, url: str, chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are notified too: the chosen one may have no free slot."""
    monkeypatch.setattr(
        claim_turns, "DELAY_S", 1.0
    )  # more than a busy machine needs to deliver both
    workers = [PostgresStore(url), PostgresStore(url)]
    notified: list[int] = []
    subscriptions: list[Any] = []
    await store.queues.ensure("q", slots=4)
    for n, worker in enumerate(workers):
        await worker.open()
        subscriptions.append(await worker.subscribe(["q"], lambda n=n: notified.append(n)))
        await worker.processes.register(
            NewProcess(
                host_id=f"host-{n}", label="", queues=("q",), pid=1, hostname="", version="",
                lease_s=60.0,
            )
        )  # fmt: skip
        await listening(worker)
    await store.processes.share(max_slots=100)
    for worker in workers:
        await worker.processes.all()
    store._server.entropy = _FixedEntropy(chosen * 0.000_001_5)
    await asyncio.sleep(0.5)
    notified.clear()
    await store.jobs.enqueue([NewJob(kind="work", queue="q")])
    async with asyncio.timeout(SOON_S):
        while set(notified) != {0, 1}:
            await asyncio.sleep(0.01)
    assert notified[0] == chosen
    for worker, subscription in zip(workers, subscriptions, strict=True):
        await subscription.close()
        await worker.close()
