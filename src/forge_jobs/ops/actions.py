"""Acting: what an operator may do to jobs, queues and workers.

Bulk work goes in bounded steps by cursor, so that it ends even while jobs move underneath it, and
reports after each step. A filter only ever reaches the states its action applies to.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Final, Protocol, TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

from forge_jobs.config import DEFAULT_QUEUE_WORKERS
from forge_jobs.core import names
from forge_jobs.core import payload as json_payload
from forge_jobs.core.counters import CappedCount
from forge_jobs.core.errors import BadOption, Conflict, ForgeError, NotFound
from forge_jobs.core.ids import decode
from forge_jobs.core.job import JobRecord, NewJob
from forge_jobs.core.selection import Acted, Cursor, Filter, Selection
from forge_jobs.core.status import LIVE, RETRYABLE, TERMINAL, WAITING, JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.redact import prose
from forge_jobs.store.jobs import Retention
from forge_jobs.store.processes import ProcessRecord
from forge_jobs.store.published_kinds import PublishedKinds
from forge_jobs.store.queues import QueueChange, QueueConfig
from forge_jobs.store.store import Store

from .audit import Audit, AuditEntry, StoreAudit
from .queries import COUNT_CAP, existing, unhidden
from .store_time import entry_time

BATCH = 500

OnProgress: TypeAlias = Callable[[Acted], None]


class Action(StrEnum):
    """What may be done to jobs."""

    RETRY = "retry"
    CANCEL = "cancel"
    RUN_NOW = "run-now"
    DELETE = "delete"
    DUPLICATE = "duplicate"


APPLIES: Final[Mapping[Action, tuple[JobStatus, ...]]] = {
    Action.RETRY: RETRYABLE,
    Action.CANCEL: LIVE,
    Action.RUN_NOW: (JobStatus.SCHEDULED, JobStatus.FAILED),
    Action.DELETE: (*WAITING, *TERMINAL),
    Action.DUPLICATE: tuple(JobStatus),
}


class Copied(Struct, frozen=True):
    """What duplicating did; ``ids`` of the copies when the originals were named by id."""

    acted: Acted
    ids: tuple[str, ...] = ()


class _Step(Protocol):
    def __call__(
        self, selection: Selection, *, limit: int, after: Cursor | None
    ) -> Awaitable[Acted]: ...


def narrowed(action: Action, filter: Filter) -> Filter:
    """The filter, kept to the states ``action`` applies to; BadOption when it names another."""
    allowed = APPLIES[action]
    strays = [status for status in filter.statuses if status not in allowed]
    if strays:
        raise BadOption(
            f"{action} does not apply to {', '.join(strays)} jobs: use {', '.join(allowed)}"
        )
    statuses = filter.statuses or allowed
    every = len(statuses) == len(JobStatus)
    return replace(filter, statuses=() if every else statuses)


class JobActions:
    """A person (or program) at the controls of one store; ``actor`` names them in the audit."""

    def __init__(
        self,
        store: Store,
        *,
        actor: str,
        audit: Audit | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        self._actor = actor
        self._audit = audit or StoreAudit(store)
        self._clock = clock

    # -------------------------------------------------------------------------------------- jobs

    async def preview(self, action: Action, filter: Filter, *, cap: int = COUNT_CAP) -> CappedCount:
        """How many jobs the action would reach, counted up to ``cap``."""
        return await self._store.metrics.count(narrowed(action, filter), cap=cap)

    async def retry(self, selection: Selection, *, progress: OnProgress | None = None) -> Acted:
        """Bring failed, dead and cancelled jobs back with all their attempts."""
        return await self._bulk(Action.RETRY, selection, self._store.jobs.retry, progress)

    async def run_now(self, selection: Selection, *, progress: OnProgress | None = None) -> Acted:
        """Start scheduled jobs and waiting retries without waiting for their time."""
        return await self._bulk(Action.RUN_NOW, selection, self._store.jobs.run_now, progress)

    async def delete(self, selection: Selection, *, progress: OnProgress | None = None) -> Acted:
        """Remove jobs that do not run; a running one named by id is asked to stop instead."""
        return await self._bulk(Action.DELETE, selection, self._store.jobs.delete, progress)

    async def cancel(
        self, selection: Selection, *, reason: str = "", progress: OnProgress | None = None
    ) -> Acted:
        """Cancel jobs that wait and ask running ones to stop."""
        said = reason or f"cancelled by {self._actor}"

        async def step(selection: Selection, *, limit: int, after: Cursor | None = None) -> Acted:
            return await self._store.jobs.cancel(selection, reason=said, limit=limit, after=after)

        return await self._bulk(Action.CANCEL, selection, step, progress)

    async def duplicate(
        self, selection: Selection, *, progress: OnProgress | None = None
    ) -> Copied:
        """Enqueue each job once more, due now and without its dedupe key."""
        ids: list[str] = []

        async def step(selection: Selection, *, limit: int, after: Cursor | None = None) -> Acted:
            if selection.filter is not None:
                page = await self._store.jobs.page(selection.filter, limit=limit, after=after)
                if page.jobs:
                    await self._store.jobs.enqueue([again(record) for record in page.jobs])
                return Acted(changed=len(page.jobs), next=page.next)
            found = [await self._store.jobs.get(job_id) for job_id in selection.ids]
            copies = [again(record) for record in found if record is not None]
            made = await self._store.jobs.enqueue(copies) if copies else []
            ids.extend(job.id for job in made)
            return Acted(changed=len(made), missing=len(found) - len(made))

        acted = await self._bulk(Action.DUPLICATE, selection, step, progress)
        return Copied(acted, tuple(ids))

    async def duplicate_one(self, job_id: str) -> str:
        """Enqueue one job once more; the id of the copy, or NotFound."""
        record = await existing(self._store, job_id)
        return (await self.duplicate(Selection(ids=(record.id,)))).ids[0]

    async def duplicate_with(self, job_id: str, payload: object) -> str:
        """Enqueue a job once more with another payload; the id of the copy.

        Secrets that were hidden from the editor and come back as they were shown are kept.
        """
        record = await existing(self._store, job_id)
        copy = edited(record, payload)
        kinds = await PublishedKinds.read(self._store)
        # Another payload may have another limit key.
        copy = kinds.apply(replace(copy, limit_key=None))
        made = (await self._store.jobs.enqueue([copy]))[0]
        changed = json_payload.decode(copy.payload) != json_payload.decode(record.payload)
        await self.note(Action.DUPLICATE, record.id, {"copy": made.id, "edited": changed})
        return made.id

    async def perform(
        self, action: Action, selection: Selection, *, progress: OnProgress | None = None
    ) -> Acted:
        """Any of the actions, by its name."""
        match action:
            case Action.RETRY:
                return await self.retry(selection, progress=progress)
            case Action.CANCEL:
                return await self.cancel(selection, progress=progress)
            case Action.DELETE:
                return await self.delete(selection, progress=progress)
            case Action.RUN_NOW:
                return await self.run_now(selection, progress=progress)
            case Action.DUPLICATE:
                return (await self.duplicate(selection, progress=progress)).acted
            case _:
                assert_never(action)

    async def purge(self, keep: Retention | None = None) -> int:
        """Remove ended jobs past their retention now, without waiting for a worker to do it; how
        many. ``keep`` with a queue is an order for that queue, whatever its settings say."""
        removed = 0
        while True:
            step = await self._store.jobs.purge(keep or Retention(), limit=BATCH)
            removed += step
            if step < BATCH:
                break
        where = "all queues" if keep is None or keep.queue is None else keep.queue
        await self.note("clean up", where, {"deleted": removed})
        return removed

    # ------------------------------------------------------------------------------------ queues

    async def set_queue(
        self, name: str, change: QueueChange, *, create: bool = False
    ) -> QueueConfig:
        """Change a queue's settings; NotFound for a name that nothing uses, unless ``create``."""
        await self._settled(name, create=create)
        config = await self._store.queues.change(name, change)
        detail = {
            field: value
            for field in QueueChange.__struct_fields__
            if isinstance(value := getattr(change, field), str | int | float | bool | None)
        }
        await self.note("set queue", name, detail)
        return config

    async def pause(self, name: str) -> QueueConfig:
        """Start nothing more from the queue; what runs ends in peace."""
        await self._settled(name)
        config = await self._store.queues.change(name, QueueChange(paused=True))
        await self.note("pause", name)
        return config

    async def resume(self, name: str) -> QueueConfig:
        """Let a paused queue go on."""
        await self._settled(name)
        config = await self._store.queues.change(name, QueueChange(paused=False))
        await self.note("resume", name)
        return config

    async def unthrottle(self, name: str) -> None:
        """Open the queue's throttle gate now."""
        await self._settled(name)
        await self._store.queues.open_gate(name)
        await self.note("unthrottle", name)

    # ----------------------------------------------------------------------------------- workers

    async def quiet(self, worker: str, *, quiet: bool = True) -> str:
        """Ask a worker to take no more jobs, or to go on; ``worker`` is its host id, the start of
        it, or its label. The host id it was sent to."""
        host_id = _chosen(worker, await self._store.processes.all()).host_id
        await self._store.processes.quiet(host_id, quiet=quiet)
        await self.note("quiet" if quiet else "unquiet", host_id)
        return host_id

    # ---------------------------------------------------------------------------------- in steps

    async def _bulk(
        self, action: Action, selection: Selection, step: _Step, progress: OnProgress | None
    ) -> Acted:
        total = Acted()
        try:
            async for done in _steps(action, selection, step):
                total = _sum(total, done)
                if progress is not None:
                    progress(total)
        except BaseException:
            # what was done until then was done by somebody
            if total != Acted():
                with contextlib.suppress(ForgeError):
                    await self.note(
                        action, subject_of(selection), {**_counted(total), "whole": False}
                    )
            raise
        await self.note(action, subject_of(selection), _counted(total))
        return total

    async def _settled(self, name: str, *, create: bool = False) -> None:
        """Make sure the queue has settings, if anything at all knows the queue."""
        names.queue_name(name)
        if await self._store.queues.get(name) is not None:
            return
        if not create:
            counts = await self._store.metrics.counts()
            if all(count.queue != name for count in counts):
                raise NotFound(
                    f"there is no queue {name!r}: see `forge queues list`, "
                    f"or make it with `forge queues set {name} --create`"
                )
        await self._store.queues.ensure(name, slots=DEFAULT_QUEUE_WORKERS)

    async def note(
        self, action: str, subject: str, detail: Mapping[str, str | int | float | bool | None] = {}
    ) -> None:
        """Put into the audit that this person did something."""
        entry = AuditEntry(
            at=await entry_time(self._store, self._clock),
            actor=self._actor,
            action=action,
            subject=subject,
            detail=detail,
        )
        await self._audit.record(entry)


async def _steps(action: Action, selection: Selection, step: _Step) -> AsyncIterator[Acted]:
    """The action in bounded steps: by cursor through a filter, or so many ids at a time."""
    if selection.filter is None:
        ids = _checked(selection.ids)
        for start in range(0, len(ids), BATCH):
            part = Selection(ids=ids[start : start + BATCH])
            yield await step(part, limit=BATCH, after=None)
        return
    chosen = Selection(filter=narrowed(action, selection.filter))
    after: Cursor | None = None
    while True:
        done = await step(chosen, limit=BATCH, after=after)
        yield done
        after = done.next
        if after is None:
            return


def edited(record: JobRecord, payload: object) -> NewJob:
    """The same work with another payload, in which hidden secrets stand for what they hide."""
    whole = unhidden(payload, json_payload.decode(record.payload))
    return replace(again(record), payload=json_payload.encode(whole))


def again(record: JobRecord) -> NewJob:
    """A request for the same work once more; without the dedupe key, which the original holds."""
    return NewJob(
        kind=record.kind,
        queue=record.queue,
        payload=record.payload,
        priority=record.priority,
        max_attempts=record.max_attempts,
        timeout_s=record.timeout_s,
        tags=record.tags,
        limit_key=record.limit_key,
        lane=record.lane,
        order=record.order,
        on_dead=record.on_dead,
    )


def _checked(ids: tuple[str, ...]) -> tuple[str, ...]:
    wrong = [job_id for job_id in ids if decode(job_id) is None]
    if wrong:
        raise BadOption(f"{wrong[0]!r} is not a job id: it has 26 letters and digits")
    return tuple(dict.fromkeys(job_id.upper() for job_id in ids))


def _chosen(text: str, processes: list[ProcessRecord]) -> ProcessRecord:
    exact = [one for one in processes if text in (one.host_id, one.label)]
    found = exact or [one for one in processes if text and one.host_id.startswith(text.upper())]
    if not found:
        raise NotFound(f"there is no living worker {text!r}: see `forge workers`")
    if len(found) > 1:
        raise Conflict(f"{text!r} fits {len(found)} workers: use the whole host id of one of them")
    return found[0]


def _sum(total: Acted, done: Acted) -> Acted:
    return Acted(
        changed=total.changed + done.changed,
        requested=total.requested + done.requested,
        skipped=total.skipped + done.skipped,
        missing=total.missing + done.missing,
    )


def _counted(total: Acted) -> dict[str, int]:
    return {
        "changed": total.changed,
        "requested": total.requested,
        "skipped": total.skipped,
        "missing": total.missing,
    }


def subject_of(selection: Selection) -> str:
    """What a selection is called in the audit."""
    if selection.filter is None:
        ids = selection.ids
        return ids[0] if len(ids) == 1 else f"{len(ids)} jobs"
    chosen = selection.filter
    parts = [
        f"{name}={getattr(chosen, name)}"
        for name in ("queue", "kind", "tag", "dedupe_key", "error")
        if getattr(chosen, name) is not None
    ]
    parts.extend(chosen.statuses)
    return "jobs where " + (prose(" ".join(parts)) or "any")
