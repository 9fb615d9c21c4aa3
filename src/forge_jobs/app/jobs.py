"""``forge.jobs(...)``: list and count stored jobs, and act on all of them, from Python code."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, TypedDict, TypeVar, cast

from msgspec.structs import replace

from forge_jobs.client.bulk_result import BulkResult
from forge_jobs.client.job import Job
from forge_jobs.client.job_actions import due_fields
from forge_jobs.client.job_client import JobClient
from forge_jobs.client.options import check_names
from forge_jobs.client.task import Task
from forge_jobs.core import names
from forge_jobs.core.error_groups import group_id
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import SECOND, Duration, from_datetime, seconds
from forge_jobs.core.job import JobRecord
from forge_jobs.core.selection import Acted, Cursor, Filter, Page, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.ops.actions import APPLIES_TO, JobActions
from forge_jobs.store.store import Store

T = TypeVar("T")
_ACTOR: Final = "application"
_PAGE_JOBS: Final = 200
_COUNT_CAP: Final = 2**62


class JobConditions(TypedDict, total=False):
    """What ``forge.jobs`` selects by; all given conditions must hold.

    ``kind``: a name, or the task. ``status``: one state or several, as text or JobStatus. ``since``
    and ``until``: when the job was enqueued, as an aware datetime or as a span back from now
    ("2h"); ``until`` is excluded. ``group``: the id of the error group of the last failed attempt
    (``forge.errors``).

    >>> forge.jobs(queue="mail", status=["dead", "cancelled"], since="1d").count()
    0
    """

    queue: str
    kind: "str | Task[..., Any]"
    status: str | JobStatus | Iterable[str | JobStatus]
    tag: str
    group: str
    since: datetime | Duration
    until: datetime | Duration


class Jobs:
    """The stored jobs that match a filter, newest first; made by ``forge.jobs(...)``.

    Nothing is read before it is iterated, counted or acted on. Iterating reads pages of 200 jobs,
    so that any number of jobs needs little memory; jobs that are enqueued meanwhile do not appear.
    An action reaches every selected job in a state that it applies to, in batches, each of them one
    transaction; jobs enqueued after it began are not touched. Each action writes one entry into the
    audit, by the actor "application". Methods whose names begin with ``a`` are for coroutines, and
    so is ``async for``.

    >>> job = send.enqueue("a@b.c")
    >>> [one.kind for one in forge.jobs(queue="mail")]
    ['send']
    >>> forge.jobs(queue="mail", status="dead").retry().changed
    0
    """

    def __init__(self, client: JobClient, conditions: JobConditions) -> None:
        where = "forge.jobs(...)"
        check_names(conditions, tuple(JobConditions.__annotations__), where=where)
        given = cast("dict[str, Any]", {k: v for k, v in conditions.items() if v is not None})
        self._client = client
        self._filter = _filter(given)
        # Spans of time count from store time, which is not known before the store is asked.
        self._back_s = {
            field: seconds(given[name], field=f"{where}: {name}")
            for name, field in _TIMES.items()
            if name in given and not isinstance(given[name], datetime)
        }
        self._text = ", ".join(f"{name}={value!r}" for name, value in given.items())

    def __repr__(self) -> str:
        return f"<jobs({self._text})>"

    def __iter__(self) -> Iterator[Job[Any]]:
        run = self._client.access.run
        wanted = run(self._resolved)
        after: Cursor | None = None
        while True:
            page = run(_reading(wanted, after))
            yield from map(self._job, page.jobs)
            after = page.next
            if after is None:
                return

    async def __aiter__(self) -> AsyncIterator[Job[Any]]:
        store = await self._client.access.aready()
        wanted = await self._resolved(store)
        after: Cursor | None = None
        while True:
            page = await _reading(wanted, after)(store)
            for record in page.jobs:
                yield self._job(record)
            after = page.next
            if after is None:
                return

    def count(self) -> int:
        """How many jobs match. By queue, kind and state alone it is read from the counters; with
        other conditions the jobs themselves are read. ``forge.jobs(status="dead").count()``"""
        return self._client.access.run(self._count)

    async def acount(self) -> int:
        """``count`` for coroutines."""
        return await self._count(await self._client.access.aready())

    def retry(self) -> BulkResult:
        """Make failed, dead and cancelled jobs pending again, with all their attempts:
        ``forge.jobs(status="dead", since="1d").retry()``."""
        return self._run(self._retry)

    async def aretry(self) -> BulkResult:
        """``retry`` for coroutines."""
        return await self._retry(await self._client.access.aready())

    def cancel(self, reason: str = "") -> BulkResult:
        """Cancel waiting jobs and ask running ones to stop; ``reason`` is stored as their error:
        ``forge.jobs(tag="march").cancel("withdrawn")``."""
        return self._run(self._cancelling(reason))

    async def acancel(self, reason: str = "") -> BulkResult:
        """``cancel`` for coroutines."""
        return await self._cancelling(reason)(await self._client.access.aready())

    def delete(self) -> BulkResult:
        """Delete jobs that do not run, with their logs and dedupe keys:
        ``forge.jobs(status="done", kind="send").delete()``."""
        return self._run(self._delete)

    async def adelete(self) -> BulkResult:
        """``delete`` for coroutines."""
        return await self._delete(await self._client.access.aready())

    def run_now(self) -> BulkResult:
        """Make scheduled jobs and waiting retries due now:
        ``forge.jobs(status="scheduled").run_now()``."""
        return self._run(self._run_now)

    async def arun_now(self) -> BulkResult:
        """``run_now`` for coroutines."""
        return await self._run_now(await self._client.access.aready())

    def reschedule(
        self, delay: Duration | None = None, *, at: datetime | None = None
    ) -> BulkResult:
        """Let waiting jobs start ``delay`` from now, or ``at`` an aware datetime; failed ones are
        retried then. A time that has passed means now.
        ``forge.jobs(kind="send").reschedule("1h")``"""
        return self._run(self._rescheduling(delay, at))

    async def areschedule(
        self, delay: Duration | None = None, *, at: datetime | None = None
    ) -> BulkResult:
        """``reschedule`` for coroutines."""
        return await self._rescheduling(delay, at)(await self._client.access.aready())

    # ------------------------------------------------------------------ parts

    async def _retry(self, store: Store) -> BulkResult:
        return _result("retry", await _actions(store).retry(await self._selection(store)))

    async def _run_now(self, store: Store) -> BulkResult:
        return _result("run-now", await _actions(store).run_now(await self._selection(store)))

    async def _delete(self, store: Store) -> BulkResult:
        return _result("delete", await _actions(store).delete(await self._selection(store)))

    def _cancelling(self, reason: str) -> "Callable[[Store], Coroutine[Any, Any, BulkResult]]":
        async def cancel(store: Store) -> BulkResult:
            selection = await self._selection(store)
            return _result("cancel", await _actions(store).cancel(selection, reason=reason))

        return cancel

    def _rescheduling(
        self, delay: Duration | None, at: datetime | None
    ) -> "Callable[[Store], Coroutine[Any, Any, BulkResult]]":
        due = due_fields(delay, at, where="forge.jobs(...).reschedule")

        async def reschedule(store: Store) -> BulkResult:
            selection = await self._selection(store)
            return _result("reschedule", await _actions(store).reschedule(selection, **due))

        return reschedule

    def _run(self, work: "Callable[[Store], Coroutine[Any, Any, T]]") -> T:
        return self._client.access.run(work)

    async def _selection(self, store: Store) -> Selection:
        return Selection(filter=await self._resolved(store))

    async def _count(self, store: Store) -> int:
        wanted = await self._resolved(store)
        counted = await store.metrics.count(wanted, cap=_COUNT_CAP)
        if not counted.more:
            return counted.jobs
        total, after = 0, None
        while True:
            page = await _reading(wanted, after)(store)
            total, after = total + len(page.jobs), page.next
            if after is None:
                return total

    async def _resolved(self, store: Store) -> Filter:
        if not self._back_s:
            return self._filter
        now = await store.now()
        times = {field: now - round(back_s * SECOND) for field, back_s in self._back_s.items()}
        return replace(self._filter, **times)

    def _job(self, record: JobRecord) -> Job[Any]:
        read = self._client.reader_of(record.kind)
        return Job[Any](self._client, record.id, read, False, record.status).update(record)


_TIMES: Final = {"since": "enqueued_from", "until": "enqueued_until"}


def _actions(store: Store) -> JobActions:
    return JobActions(store, actor=_ACTOR)


def _reading(
    wanted: Filter, after: Cursor | None
) -> "Callable[[Store], Coroutine[Any, Any, Page]]":
    async def read(store: Store) -> Page:
        return await store.jobs.page(wanted, limit=_PAGE_JOBS, after=after)

    return read


def _filter(given: Mapping[str, Any]) -> Filter:
    kind = given.get("kind")
    if kind is not None:
        kind = kind.kind if isinstance(kind, Task) else names.kind_name(kind)
    found = Filter(
        queue=names.queue_name(given["queue"]) if "queue" in given else None,
        kind=kind,
        statuses=_statuses(given["status"]) if "status" in given else (),
        tag=names.tag_list([given["tag"]])[0] if "tag" in given else None,
        group=group_id(given["group"]) if "group" in given else None,
    )
    times = {
        field: from_datetime(given[name], field=f"forge.jobs(...): {name}")
        for name, field in _TIMES.items()
        if isinstance(given.get(name), datetime)
    }
    return replace(found, **times)


def _statuses(value: Any) -> tuple[JobStatus, ...]:
    listed: list[Any] = [value] if isinstance(value, str) else list(value)
    found: dict[JobStatus, None] = {}
    for item in listed:
        try:
            found[JobStatus("running" if item == "in_progress" else item)] = None
        except ValueError:
            known = ", ".join(repr(str(status)) for status in JobStatus)
            raise BadOption(
                f"forge.jobs(...): status={item!r} is no state: use one or several of {known}"
            ) from None
    if not found:
        raise BadOption("forge.jobs(...): status=[] selects nothing: leave it out for all states")
    return tuple(found)


def _result(action: str, acted: Acted) -> BulkResult:
    reasons: dict[str, int] = {}
    if acted.key_taken:
        reasons["another live job holds their dedupe key"] = acted.key_taken
    if acted.skipped > acted.key_taken:
        states = ", ".join(APPLIES_TO[action])
        reasons[f"they changed their state meanwhile, it applies to {states}"] = (
            acted.skipped - acted.key_taken
        )
    return BulkResult(
        action=action,
        changed=acted.changed,
        requested=acted.requested,
        refused=acted.skipped,
        reasons=reasons,
    )
