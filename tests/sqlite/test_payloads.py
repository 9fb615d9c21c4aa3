"""Payloads and results come back byte for byte, whatever way they take through the tables."""

import pytest

from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.decide import done
from forge_jobs.core.job import NewJob
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess

PAYLOADS = [
    b"{}",
    b"null",
    b' { "a" : [ 1 , 2.50 , 1e3 ] }\n',
    b'"\\u001e \\u00e9 \xc3\xa9 \xf0\x9f\x98\x80"',
    b'"' + b"x" * 2_047 + b'"',
    b'{"big": "' + b"y" * 200_000 + b'"}',
    b'"a bare \x1e separator"',
    b"",
]


async def test_payloads_and_results(store: SqliteStore) -> None:
    key = await store.processes.register(
        NewProcess(host_id="h", label="h", queues=("q",), pid=1, hostname="here")
    )
    stored = await store.jobs.enqueue(
        [NewJob(kind="k", queue="q", payload=payload) for payload in PAYLOADS]
    )
    for payload in PAYLOADS:
        stored += store.enqueue_sync([NewJob(kind="k", queue="q", payload=payload)])
    expected = PAYLOADS * 2
    answer = await store.jobs.exchange(
        Exchange(owner=key, number=1, want=[Want("q", 3, len(expected))])
    )
    assert [job.payload for job in answer.claims] == expected
    ends = [done(job, result=job.payload) for job in answer.claims]
    await store.jobs.exchange(Exchange(owner=key, number=2, finish=ends))
    records = [await store.jobs.get(job.id) for job in stored]
    assert [record.payload for record in records if record] == expected
    assert [record.result for record in records if record] == expected
    peeks = await store.jobs.peek([job.id for job in stored])
    assert [peek.result for peek in peeks if peek] == expected


UNUSUAL = [*PAYLOADS, b'"\\u0000"', b"\x00", b"\xff\xfe", b"\t[\r\n]\x7f", b"[" * 2_100]


@pytest.mark.parametrize("payload", UNUSUAL)
async def test_many_jobs_with_unusual_payloads(store: SqliteStore, payload: bytes) -> None:
    jobs = [NewJob(kind="k", queue="q", payload=payload) for _ in range(5)]
    stored = await store.jobs.enqueue(jobs)
    key = await store.processes.register(
        NewProcess(host_id="h", label="h", queues=("q",), pid=1, hostname="here")
    )
    answer = await store.jobs.exchange(Exchange(owner=key, number=1, want=[Want("q", 5)]))
    assert [job.payload for job in answer.claims] == [payload] * 5
    found = await store.jobs.get(stored[-1].id)
    assert found is not None
    assert found.payload == payload


@pytest.mark.parametrize("many", [1, 2, 7, 8, 63, 64, 65, 200])
async def test_batches_of_every_size_keep_their_order(store: SqliteStore, many: int) -> None:
    jobs = [NewJob(kind=f"k{number}", queue="q") for number in range(many)]
    stored = await store.jobs.enqueue(jobs)
    assert [job.key for job in stored] == list(range(1, many + 1))
    key = await store.processes.register(
        NewProcess(host_id="h", label="h", queues=("q",), pid=1, hostname="here")
    )
    answer = await store.jobs.exchange(Exchange(owner=key, number=1, want=[Want("q", many)]))
    assert [job.kind for job in answer.claims] == [job.kind for job in jobs]
    assert sum(count.jobs for count in await store.metrics.counts()) == many
