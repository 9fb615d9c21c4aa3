"""Operator actions on jobs, queues and workers; each one writes an audit entry.

Bulk actions run in batches of 500 jobs by cursor, so that they end even while jobs change state,
and report progress after each batch. A filter reaches only the states its action applies to.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

from forge_jobs.config import DEFAULT_QUEUE_WORKERS
from forge_jobs.core import names
from forge_jobs.core import payload as json_payload
from forge_jobs.core.audit import MAX_IDS, Value
from forge_jobs.core.counters import CappedCount
from forge_jobs.core.errors import BadOption, Conflict, ForgeError, NotFound
from forge_jobs.core.ids import decode
from forge_jobs.core.selection import Acted, BulkAction, Cursor, Filter, Selection
from forge_jobs.core.status import LIVE, RETRYABLE, TERMINAL, WAITING, JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.redact import prose
from forge_jobs.store.jobs import Retention
from forge_jobs.store.processes import ProcessRecord
from forge_jobs.store.published_kinds import PublishedKinds
from forge_jobs.store.queues import QueueChange, QueueConfig
from forge_jobs.store.store import Store

from .audit import Actor, Audit, AuditTrail, field_values
from .duplicates import duplicate_request, duplicate_request_with
from .queries import COUNT_CAP, get_record

BATCH_SIZE = 500

OnProgress: TypeAlias = Callable[[Acted], None]


class Action(StrEnum):
    """Actions on jobs, by the name that the command line and the HTTP API use."""

    RETRY = "retry"
    CANCEL = "cancel"
    RUN_NOW = "run-now"
    DELETE = "delete"
    DUPLICATE = "duplicate"


# By Python code only: it takes a time, which neither the command line nor a page asks for.
RESCHEDULE: Final = "reschedule"
APPLIES_TO: Final[Mapping[str, tuple[JobStatus, ...]]] = {
    Action.RETRY: RETRYABLE,
    Action.CANCEL: LIVE,
    Action.RUN_NOW: (JobStatus.SCHEDULED, JobStatus.FAILED),
    Action.DELETE: (*WAITING, JobStatus.SUSPENDED, *TERMINAL),
    Action.DUPLICATE: tuple(JobStatus),
    RESCHEDULE: WAITING,
}


class DuplicateResult(Struct, frozen=True):
    """The totals, and the ``ids`` of the copies if the originals were selected by id."""

    acted: Acted
    ids: tuple[str, ...] = ()


class _BatchAction(Protocol):
    def __call__(
        self, selection: Selection, *, limit: int, after: Cursor | None
    ) -> Awaitable[Acted]: ...


def restrict_filter(action: str, filter: Filter) -> Filter:
    """The filter restricted to the states ``action`` applies to; BadOption if it names another."""
    allowed = APPLIES_TO[action]
    invalid = [status for status in filter.statuses if status not in allowed]
    if invalid:
        raise BadOption(
            f"{action} does not apply to {', '.join(invalid)} jobs: use {', '.join(allowed)}"
        )
    statuses = filter.statuses or allowed
    covers_all = len(statuses) == len(JobStatus)
    return replace(filter, statuses=() if covers_all else statuses)


class JobActions:
    """Changes jobs, queues and workers of one store; ``actor`` is the name in the audit."""

    def __init__(
        self,
        store: Store,
        *,
        actor: str | Actor,
        audit: Audit | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        trail = AuditTrail(store, actor, audit, clock)
        self._actor = trail.actor.name
        self.record_action = trail.record

    # -------------------------------------------------------------------------------------- jobs

    async def preview(self, action: Action, filter: Filter, *, cap: int = COUNT_CAP) -> CappedCount:
        """Count the jobs the action would reach, up to ``cap``."""
        return await self._store.metrics.count(restrict_filter(action, filter), cap=cap)

    async def retry(self, selection: Selection, *, progress: OnProgress | None = None) -> Acted:
        """Make failed, dead and cancelled jobs pending again, with all their attempts."""
        return await self._act(Action.RETRY, BulkAction.RETRY, selection, progress)

    async def run_now(self, selection: Selection, *, progress: OnProgress | None = None) -> Acted:
        """Make scheduled jobs and waiting retries due now."""
        return await self._act(Action.RUN_NOW, BulkAction.RUN_NOW, selection, progress)

    async def reschedule(self, selection: Selection, **due: Any) -> Acted:
        """Give waiting jobs another due time: ``delay_s`` or ``run_at`` of ``JobStore.act``."""
        run_batch = partial(self._store.jobs.act, BulkAction.RESCHEDULE, **due)
        return await self._run_bulk(RESCHEDULE, selection, run_batch, None)

    async def delete(self, selection: Selection, *, progress: OnProgress | None = None) -> Acted:
        """Delete jobs that are not running; a running one selected by id gets a cancel request."""
        return await self._act(Action.DELETE, BulkAction.DELETE, selection, progress)

    async def cancel(
        self, selection: Selection, *, reason: str = "", progress: OnProgress | None = None
    ) -> Acted:
        """Cancel waiting jobs and request the cancellation of running ones."""
        text = reason or f"cancelled by {self._actor}"
        return await self._act(Action.CANCEL, BulkAction.CANCEL, selection, progress, reason=text)

    async def duplicate(
        self, selection: Selection, *, progress: OnProgress | None = None
    ) -> DuplicateResult:
        """Enqueue a copy of each job, due now and without its dedupe key."""
        ids: list[str] = []

        async def run_batch(
            selection: Selection, *, limit: int, after: Cursor | None = None
        ) -> Acted:
            if selection.filter is not None:
                page = await self._store.jobs.page(selection.filter, limit=limit, after=after)
                if page.jobs:
                    await self._store.jobs.enqueue(
                        [duplicate_request(record) for record in page.jobs]
                    )
                return Acted(changed=len(page.jobs), next=page.next)
            records = [await self._store.jobs.get(job_id) for job_id in selection.ids]
            copies = [duplicate_request(record) for record in records if record is not None]
            enqueued = await self._store.jobs.enqueue(copies) if copies else []
            ids.extend(job.id for job in enqueued)
            return Acted(changed=len(enqueued), missing=len(records) - len(enqueued))

        acted = await self._run_bulk(Action.DUPLICATE, selection, run_batch, progress)
        return DuplicateResult(acted, tuple(ids))

    async def duplicate_one(self, job_id: str) -> str:
        """Enqueue a copy of one job and return its id; NotFound for an unknown job."""
        record = await get_record(self._store, job_id)
        return (await self.duplicate(Selection(ids=(record.id,)))).ids[0]

    async def duplicate_with(self, job_id: str, payload: object) -> str:
        """Enqueue a copy with another payload and return its id.

        Redacted values that come back unchanged are replaced by the original secrets.
        """
        record = await get_record(self._store, job_id)
        copy = duplicate_request_with(record, payload)
        kinds = await PublishedKinds.read(self._store)
        json_payload.check(copy.payload, limit=kinds.payload_limit(copy.kind), what="the payload")
        # Another payload may have another limit key.
        copy = kinds.apply(replace(copy, limit_key=None))
        enqueued = (await self._store.jobs.enqueue([copy]))[0]
        changed = json_payload.decode(copy.payload) != json_payload.decode(record.payload)
        await self.record_action(
            Action.DUPLICATE, record.id, {"copy": enqueued.id, "edited": changed}
        )
        return enqueued.id

    async def perform(
        self, action: Action, selection: Selection, *, progress: OnProgress | None = None
    ) -> Acted:
        """Run the action of that name."""
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

    async def purge(self, retention: Retention | None = None) -> int:
        """Delete terminal jobs past their retention now and return how many. A ``retention`` that
        names a queue overrides that queue's settings."""
        deleted = 0
        while True:
            batch = await self._store.jobs.purge(retention or Retention(), limit=BATCH_SIZE)
            deleted += batch
            if batch < BATCH_SIZE:
                break
        subject = "all queues" if retention is None or retention.queue is None else retention.queue
        await self.record_action("clean up", subject, {"deleted": deleted})
        return deleted

    # ------------------------------------------------------------------------------------ queues

    async def set_queue(
        self, name: str, change: QueueChange, *, create: bool = False
    ) -> QueueConfig:
        """Change a queue's settings; NotFound for an unused name, unless ``create``."""
        await self._ensure_queue(name, create=create)
        detail: dict[str, Value] = {
            field: value
            for field in QueueChange.__struct_fields__
            if isinstance(value := getattr(change, field), str | int | float | bool | None)
        }
        return await self._change_queue("set queue", name, change, detail)

    async def pause(self, name: str) -> QueueConfig:
        """Start no further jobs of the queue; running ones continue."""
        await self._ensure_queue(name)
        return await self._change_queue("pause", name, QueueChange(paused=True))

    async def resume(self, name: str) -> QueueConfig:
        """Start jobs of a paused queue again."""
        await self._ensure_queue(name)
        return await self._change_queue("resume", name, QueueChange(paused=False))

    async def unthrottle(self, name: str) -> None:
        """Open the queue's throttle gate now."""
        await self._ensure_queue(name)
        await self._store.queues.open_gate(name)
        await self.record_action("unthrottle", name)

    # ----------------------------------------------------------------------------------- workers

    async def quiet(self, worker: str, *, quiet: bool = True) -> str:
        """Ask a worker to claim no more jobs, or to claim again; return its host id. ``worker`` is
        the host id, a prefix of it, or the label."""
        host_id = _find_worker(worker, await self._store.processes.all()).host_id
        await self._store.processes.quiet(host_id, quiet=quiet)
        await self.record_action("quiet" if quiet else "unquiet", host_id)
        return host_id

    # ------------------------------------------------------------------------------------- parts

    async def _act(
        self,
        action: Action,
        bulk_action: BulkAction,
        selection: Selection,
        progress: OnProgress | None,
        *,
        reason: str = "",
    ) -> Acted:
        run_batch = partial(self._store.jobs.act, bulk_action, reason=reason)
        return await self._run_bulk(action, selection, run_batch, progress)

    async def _run_bulk(
        self,
        action: str,
        selection: Selection,
        run_batch: _BatchAction,
        progress: OnProgress | None,
    ) -> Acted:
        total = Acted()
        ids = await self._first_ids(action, selection)
        try:
            async for done in _run_in_batches(action, selection, run_batch):
                total = _add(total, done)
                if progress is not None:
                    progress(total)
        except BaseException:
            # the batches that were committed stay, so the audit must show them
            if total != Acted():
                with contextlib.suppress(ForgeError):
                    detail = {**_detail(total), "whole": False}
                    await self.record_action(action, audit_subject(selection), detail, ids=ids)
            raise
        await self.record_action(action, audit_subject(selection), _detail(total), ids=ids)
        return total

    async def _first_ids(self, action: str, selection: Selection) -> tuple[str, ...]:
        """The first jobs that the action is about, for the audit."""
        if selection.filter is None:
            return _validated_ids(selection.ids)[:MAX_IDS]
        filter = restrict_filter(action, selection.filter)
        page = await self._store.jobs.page(filter, limit=MAX_IDS)
        return tuple(record.id for record in page.jobs)

    async def _change_queue(
        self, action: str, name: str, change: QueueChange, detail: Mapping[str, Value] = {}
    ) -> QueueConfig:
        fields = QueueChange.__struct_fields__
        before = field_values(await self._store.queues.get(name), fields)
        config = await self._store.queues.change(name, change)
        after = field_values(config, fields)
        await self.record_action(action, name, detail, before=before, after=after)
        return config

    async def _ensure_queue(self, name: str, *, create: bool = False) -> None:
        """Create settings for a queue that has jobs but no settings yet, or with ``create``."""
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


async def _run_in_batches(
    action: str, selection: Selection, run_batch: _BatchAction
) -> AsyncIterator[Acted]:
    """Run the action batch by batch: by cursor through a filter, or in slices of the ids."""
    if selection.filter is None:
        ids = _validated_ids(selection.ids)
        for start in range(0, len(ids), BATCH_SIZE):
            batch = Selection(ids=ids[start : start + BATCH_SIZE])
            yield await run_batch(batch, limit=BATCH_SIZE, after=None)
        return
    restricted = Selection(filter=restrict_filter(action, selection.filter))
    after: Cursor | None = None
    while True:
        done = await run_batch(restricted, limit=BATCH_SIZE, after=after)
        yield done
        after = done.next
        if after is None:
            return


def _validated_ids(ids: tuple[str, ...]) -> tuple[str, ...]:
    invalid = [job_id for job_id in ids if decode(job_id) is None]
    if invalid:
        raise BadOption(f"{invalid[0]!r} is not a job id: it has 26 letters and digits")
    return tuple(dict.fromkeys(job_id.upper() for job_id in ids))


def _find_worker(text: str, processes: list[ProcessRecord]) -> ProcessRecord:
    matches = [process for process in processes if text in (process.host_id, process.label)]
    if not matches and text:
        matches = [p for p in processes if p.host_id.startswith(text.upper())]
    if not matches:
        raise NotFound(f"there is no living worker {text!r}: see `forge workers`")
    if len(matches) > 1:
        raise Conflict(
            f"{text!r} fits {len(matches)} workers: use the whole host id of one of them"
        )
    return matches[0]


def _add(total: Acted, done: Acted) -> Acted:
    return Acted(
        changed=total.changed + done.changed,
        requested=total.requested + done.requested,
        skipped=total.skipped + done.skipped,
        key_taken=total.key_taken + done.key_taken,
        missing=total.missing + done.missing,
    )


def _detail(total: Acted) -> dict[str, int]:
    return {
        "changed": total.changed,
        "requested": total.requested,
        "skipped": total.skipped,
        "missing": total.missing,
    }


def audit_subject(selection: Selection) -> str:
    """The subject of an audit entry about a selection."""
    if selection.filter is None:
        ids = selection.ids
        return ids[0] if len(ids) == 1 else f"{len(ids)} jobs"
    filter = selection.filter
    parts = [
        f"{name}={getattr(filter, name)}"
        for name in ("queue", "kind", "tag", "dedupe_key", "error", "group")
        if getattr(filter, name) is not None
    ]
    parts.extend(filter.statuses)
    return "jobs where " + (prose(" ".join(parts)) or "any")
