"""``forge.schedules``: read and change the stored schedules, from sync and async code."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from msgspec import UNSET

from forge_jobs.app.cron import DeclaredSchedules, ScheduleOptions
from forge_jobs.client.job import Job
from forge_jobs.client.job_client import JobClient
from forge_jobs.client.options import check_names
from forge_jobs.client.task import Task
from forge_jobs.core.instant import Duration, seconds
from forge_jobs.core.schedule import CronSpec
from forge_jobs.core.schedule_ticks import template_of
from forge_jobs.engine.requests.job_requests import JobRequests
from forge_jobs.ops.schedules import FireView, ScheduleActions, ScheduleChange, ScheduleView
from forge_jobs.store.schedules import FIRES_KEPT, Fire, FireOutcome
from forge_jobs.store.store import Store

T = TypeVar("T")
_ACTOR = "application"


class CronEdit(TypedDict, total=False):
    """What ``forge.schedules.edit`` changes; ``queue=None`` means the queue of the kind."""

    expression: str
    tz: str
    payload: Mapping[str, Any]
    queue: str | None
    missed: Literal["skip", "once", "all"]
    missed_limit: int
    overlap: Literal["skip", "allow"]
    jitter: Duration
    max_attempts: int | None


class Schedules:
    """The schedules in the store. Every method has an async twin whose name begins with ``a``.

    Unknown names raise NotFound. All workers follow a change within a second. A change made here
    stays, whatever the code declares.

    >>> nightly = forge.schedules.create("nightly", "0 3 * * *", send, payload={"to": "a@b.c"})
    >>> [one.name for one in forge.schedules.list()]
    ['nightly']
    """

    def __init__(
        self,
        client: JobClient,
        declared: DeclaredSchedules,
        requests: JobRequests,
    ) -> None:
        self._client = client
        self._declared = declared
        self._requests = requests

    def list(self) -> tuple[ScheduleView, ...]:
        """All schedules, by name: ``forge.schedules.list()``."""
        return self._run(lambda table: table.all())

    async def alist(self) -> tuple[ScheduleView, ...]:
        """``list`` for coroutines."""
        return await (await self._table()).all()

    def get(self, name: str) -> ScheduleView:
        """One schedule: ``forge.schedules.get("nightly").next_at``."""
        return self._run(lambda table: table.get(name))

    async def aget(self, name: str) -> ScheduleView:
        """``get`` for coroutines."""
        return await (await self._table()).get(name)

    def create(
        self,
        name: str,
        expression: str,
        task: str | Task[..., Any],
        *,
        enabled: bool = True,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleView:
        """Create a schedule for a task or a kind; Conflict when the name is taken:
        ``forge.schedules.create("weekly", "0 3 * * mon", send, payload={"to": "a@b.c"})``."""
        spec = self._spec(name, expression, task, options)
        return self._run(lambda table: table.create(spec, enabled=enabled))

    async def acreate(
        self,
        name: str,
        expression: str,
        task: str | Task[..., Any],
        *,
        enabled: bool = True,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleView:
        """``create`` for coroutines."""
        spec = self._spec(name, expression, task, options)
        return await (await self._table()).create(spec, enabled=enabled)

    def edit(self, name: str, **changes: Unpack[CronEdit]) -> ScheduleView:
        """Change some options of a schedule:
        ``forge.schedules.edit("nightly", expression="30 3 * * *")``."""
        return self._run(lambda table: self._edit(table, name, changes))

    async def aedit(self, name: str, **changes: Unpack[CronEdit]) -> ScheduleView:
        """``edit`` for coroutines."""
        return await self._edit(await self._table(), name, changes)

    def enable(self, name: str) -> ScheduleView:
        """Enable a schedule; it fires from the next tick on:
        ``forge.schedules.enable("nightly")``."""
        return self._run(lambda table: table.enable(name))

    async def aenable(self, name: str) -> ScheduleView:
        """``enable`` for coroutines."""
        return await (await self._table()).enable(name)

    def disable(self, name: str) -> ScheduleView:
        """Fire no more: ``forge.schedules.disable("nightly")``."""
        return self._run(lambda table: table.disable(name))

    async def adisable(self, name: str) -> ScheduleView:
        """``disable`` for coroutines."""
        return await (await self._table()).disable(name)

    def delete(self, name: str) -> None:
        """Remove a schedule and its history; its jobs stay:
        ``forge.schedules.delete("nightly")``."""
        self._run(lambda table: table.delete(name))

    async def adelete(self, name: str) -> None:
        """``delete`` for coroutines."""
        await (await self._table()).delete(name)

    def trigger(self, name: str) -> Job[Any]:
        """Enqueue its job now; ``duplicate`` if its overlap policy found an earlier job live:
        ``forge.schedules.trigger("nightly")``."""
        return self._job(self._run(lambda table: self._trigger(table, name)))

    async def atrigger(self, name: str) -> Job[Any]:
        """``trigger`` for coroutines."""
        return self._job(await self._trigger(await self._table(), name))

    def history(self, name: str, *, limit: int = FIRES_KEPT) -> tuple[FireView, ...]:
        """Its last fires, newest first; 50 are kept: ``forge.schedules.history("nightly")``."""
        return self._run(lambda table: table.history(name, limit=limit))

    async def ahistory(self, name: str, *, limit: int = FIRES_KEPT) -> tuple[FireView, ...]:
        """``history`` for coroutines."""
        return await (await self._table()).history(name, limit=limit)

    async def _trigger(self, table: ScheduleActions, name: str) -> Fire:
        prepare = self._client.enqueuer.prepare
        requests = self._requests
        return await table.trigger(
            name,
            queue_of=requests.declared_queue,
            declaration_of=requests.declaration,
            prepare=prepare,
        )

    async def _edit(self, table: ScheduleActions, name: str, changes: CronEdit) -> ScheduleView:
        where = f"forge.schedules.edit({name!r})"
        check_names(changes, tuple(CronEdit.__annotations__), where=where)
        given: dict[str, Any] = dict(changes)
        if "payload" in given:
            kind = (await table.get(name)).kind
            job, known = self._declared.job(kind, given["payload"], where)
            given["payload"] = job.payload
            if known:
                # What the task derives from its arguments, such as the limit key.
                given["template"] = template_of(job)
        if "jitter" in given:
            given["jitter_s"] = seconds(given.pop("jitter"), field=f"{where}: jitter")
        given["zone"] = given.pop("tz", UNSET)
        return await table.edit(name, ScheduleChange(**given))

    def _run(self, work: Callable[[ScheduleActions], Coroutine[Any, Any, T]]) -> T:
        def on_store(store: Store) -> Coroutine[Any, Any, T]:
            return work(ScheduleActions(store, actor=_ACTOR))

        return self._client.access.run(on_store)

    async def _table(self) -> ScheduleActions:
        return ScheduleActions(await self._client.access.aready(), actor=_ACTOR)

    def _job(self, fire: Fire) -> Job[Any]:
        return Job(self._client, fire.job_id or "", None, fire.outcome is FireOutcome.SKIPPED)

    def _spec(
        self, name: str, expression: str, task: str | Task[..., Any], options: ScheduleOptions
    ) -> CronSpec:
        where = f"forge.schedules.create({name!r})"
        check_names(options, tuple(ScheduleOptions.__annotations__), where=where)
        kind = task.kind if isinstance(task, Task) else task
        return self._declared.spec(kind, expression, {**options, "name": name}, where=where)
