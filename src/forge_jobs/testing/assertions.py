"""Assertions on enqueued jobs, for users' tests."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from forge_jobs.app import Forge
from forge_jobs.client.job import Job
from forge_jobs.client.task import Task
from forge_jobs.core import payload
from forge_jobs.core.job import JobRecord
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.store.store import Store

Where = Callable[[JobRecord], bool]
_PAGE_JOBS = 500
_MAX_LISTED = 10


def enqueued(
    forge: Forge,
    task: "Task[..., Any] | str | None" = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    queue: str | None = None,
    status: JobStatus | str | None = None,
    tag: str | None = None,
    where: Where | None = None,
) -> list[Job[Any]]:
    """All jobs in the store that match, oldest first, in whatever state they are.

    ``arguments`` are some of a job's arguments by name; ``where`` is a further condition on its
    record.

    >>> job = send.enqueue("a@b.c")
    >>> [one.payload["to"] for one in testing.enqueued(forge, send)]
    ['a@b.c']
    """
    records = _records(forge, task, queue, status, tag)
    return [
        Job(forge.client, record.id, None, False, record.status).update(record)
        for record in records
        if _matches(record, arguments) and (where is None or where(record))
    ]


def assert_enqueued(
    forge: Forge,
    task: "Task[..., Any] | str",
    arguments: Mapping[str, Any] | None = None,
    *,
    times: int | None = 1,
    queue: str | None = None,
    status: JobStatus | str | None = None,
    tag: str | None = None,
    where: Where | None = None,
) -> list[Job[Any]]:
    """Fail unless exactly ``times`` matching jobs were enqueued (None: at least one); returns them.

    ``assert_enqueued(forge, send, {"to": "a@b.c"})`` expects one ``send`` to that address.

    >>> job = send.enqueue("a@b.c")
    >>> [same] = testing.assert_enqueued(forge, send, {"to": "a@b.c"}, queue="mail")
    >>> same.id == job.id
    True
    """
    jobs = enqueued(forge, task, arguments, queue=queue, status=status, tag=tag, where=where)
    if len(jobs) == times or (times is None and jobs):
        return jobs
    wanted = "at least one" if times is None else f"{times}"
    conditions = {
        "arguments": arguments,
        "queue": queue,
        "status": None if status is None else str(status),
        "tag": tag,
        "where": where,
    }
    given = "".join(
        f", {name}={value!r}" for name, value in conditions.items() if value is not None
    )
    raise AssertionError(
        f"expected {wanted} of {_kind(task)!r}{given}, found {len(jobs)}. "
        f"Enqueued of that kind: {_listing(_records(forge, task, None, None, None))}"
    )


def refute_enqueued(
    forge: Forge,
    task: "Task[..., Any] | str",
    arguments: Mapping[str, Any] | None = None,
    *,
    queue: str | None = None,
    status: JobStatus | str | None = None,
    tag: str | None = None,
    where: Where | None = None,
) -> None:
    """Fail if a matching job was enqueued.

    >>> testing.refute_enqueued(forge, send)
    """
    assert_enqueued(
        forge, task, arguments, times=0, queue=queue, status=status, tag=tag, where=where
    )


def _records(
    forge: Forge,
    task: "Task[..., Any] | str | None",
    queue: str | None,
    status: JobStatus | str | None,
    tag: str | None,
) -> list[JobRecord]:
    wanted = Filter(
        kind=None if task is None else _kind(task),
        queue=queue,
        statuses=() if status is None else (JobStatus(status),),
        tag=tag,
    )

    async def read(store: Store) -> list[JobRecord]:
        records: list[JobRecord] = []
        cursor = None
        while True:
            page = await store.jobs.page(wanted, limit=_PAGE_JOBS, after=cursor)
            records.extend(page.jobs)
            cursor = page.next
            if cursor is None:
                return records

    return sorted(forge.client.access.run(read), key=lambda record: record.key)


def _kind(task: "Task[..., Any] | str") -> str:
    return task if isinstance(task, str) else task.kind


def _matches(record: JobRecord, arguments: Mapping[str, Any] | None) -> bool:
    if not arguments:
        return True
    decoded = payload.decode(record.payload)
    if not isinstance(decoded, dict):
        return False
    stored = cast("dict[str, Any]", decoded)
    # Encoded and decoded, so that a tuple or a dataclass compares equal to what was stored.
    wanted = payload.decode(payload.encode(dict(arguments)))
    return all(name in stored and stored[name] == value for name, value in wanted.items())


def _listing(records: list[JobRecord]) -> str:
    if not records:
        return "none"
    lines = [
        f"\n  {record.status} in {record.queue}: {record.payload.decode()}"
        for record in records[:_MAX_LISTED]
    ]
    more = f"\n  … and {len(records) - _MAX_LISTED} more" if len(records) > _MAX_LISTED else ""
    return "".join(lines) + more
