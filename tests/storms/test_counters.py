"""The comparison of counters and rows: no finding if they agree, one for each difference."""

from collections.abc import Callable

import pytest
from msgspec import structs

from forge_jobs import Forge, JobRecord, Throttled
from forge_jobs.core.counters import Count, Minute
from forge_jobs.core.histogram import histogram
from rigs.storms.counters import compare, every_job, find_differences

Counted = tuple[list[JobRecord], list[Count], list[Minute], list[Minute]]


async def _counters() -> Counted:
    async with Forge("memory://") as forge:

        @forge.task(max_attempts=2)
        async def work(n: int) -> None:
            if n % 3 == 0:
                raise ValueError
            if n == 1:
                raise Throttled(retry_after=3_600)

        await work.aenqueue_many([(n,) for n in range(2, 12)])
        await forge.drain()
        await work.aenqueue(1)
        await forge.drain()
        jobs = await every_job(forge.store)
        assert await compare(forge.store, jobs, "now") == []
        metrics = forge.store.metrics
        minutes = await metrics.minutes(since=0, until=1 << 60)
        return jobs, await metrics.counts(), minutes, await metrics.totals()


def _changed(parts: list[Minute], **fields: object) -> list[Minute]:
    return [structs.replace(parts[0], **fields), *parts[1:]]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda j, c, m, t: (j[1:], c, m, t), "rows say"),
        (lambda j, c, m, t: (j, c[1:], m, t), "counts say"),
        (lambda j, c, m, t: (j, c, _changed(m, done=99), t), "done is 99"),
        (lambda j, c, m, t: (j, c, _changed(m, took=histogram([1e5])), t), "total times"),
        (lambda j, c, m, t: (j, c, m, _changed(t, retried=99)), "not the sum of the minutes"),
        (lambda j, c, m, t: (j, c, m, _changed(t, started=99)), "claims were spent"),
        (lambda j, c, m, t: (j, c, m, _changed(t, ran=histogram([1.0]))), "run times"),
    ],
)
async def test_each_difference_is_found(spoil: Callable[..., Counted], words: str) -> None:
    recorded = await _counters()
    assert list(find_differences(*recorded)) == []
    assert any(words in finding for finding in find_differences(*spoil(*recorded)))
