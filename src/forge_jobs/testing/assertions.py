"""What was enqueued: assertions for users' own tests."""

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
_PAGE = 500
_SHOWN = 10


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
    """Every job in the store that fits, oldest first, whatever became of it.

    ``arguments`` are some of its arguments by name; ``where`` is any further condition on its
    record.
    """
    found = _found(forge, task, queue, status, tag)
    return [
        Job(forge.client, record.id, None, False, record.status).update(record)
        for record in found
        if _fits(record, arguments) and (where is None or where(record))
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
    """Fail unless exactly ``times`` such jobs were enqueued (None: at least one).

    ``assert_enqueued(forge, send, {"to": "a@b.c"})`` asks for one ``send`` to that address. Returns
    the jobs.
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
    asked = "".join(
        f", {name}={value!r}" for name, value in conditions.items() if value is not None
    )
    raise AssertionError(
        f"expected {wanted} of {_kind(task)!r}{asked}, found {len(jobs)}. "
        f"Enqueued of that kind: {_listing(_found(forge, task, None, None, None))}"
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
    """Fail if such a job was enqueued."""
    assert_enqueued(
        forge, task, arguments, times=0, queue=queue, status=status, tag=tag, where=where
    )


def _found(
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
            page = await store.jobs.page(wanted, limit=_PAGE, after=cursor)
            records.extend(page.jobs)
            cursor = page.next
            if cursor is None:
                return records

    return sorted(forge.client.access.run(read), key=lambda record: record.key)


def _kind(task: "Task[..., Any] | str") -> str:
    return task if isinstance(task, str) else task.kind


def _fits(record: JobRecord, arguments: Mapping[str, Any] | None) -> bool:
    if not arguments:
        return True
    held = payload.decode(record.payload)
    if not isinstance(held, dict):
        return False
    stored = cast("dict[str, Any]", held)
    # Through JSON and back, so that a tuple or a dataclass compares with what was stored.
    wanted = payload.decode(payload.encode(dict(arguments)))
    return all(name in stored and stored[name] == value for name, value in wanted.items())


def _listing(records: list[JobRecord]) -> str:
    if not records:
        return "none"
    lines = [
        f"\n  {record.status} in {record.queue}: {record.payload.decode()}"
        for record in records[:_SHOWN]
    ]
    more = f"\n  … and {len(records) - _SHOWN} more" if len(records) > _SHOWN else ""
    return "".join(lines) + more
