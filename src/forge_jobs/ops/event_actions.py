"""Operator actions on workflows: send an event, retry a job from a step. Both are audited."""

from typing import Final

from msgspec import Struct

from forge_jobs.core.audit import Value
from forge_jobs.core.errors import BadOption, Refused
from forge_jobs.core.events import SentEvent
from forge_jobs.core.job import JobRecord
from forge_jobs.core.new_event import new_event
from forge_jobs.core.status import RETRYABLE, is_terminal
from forge_jobs.core.steps import shown_step
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Store

from .audit import Actor, Audit, AuditTrail
from .queries import get_record
from .steps import find_step, read_records

# Waiting jobs are counted up to here, for the audit.
_COUNTED: Final = 500


class RetriedFrom(Struct, frozen=True, kw_only=True):
    """A retried job: ``deleted`` steps run again, ``kept`` return their stored value."""

    id: str
    step: str
    deleted: int
    kept: int


class EventActions:
    """Sends events and retries jobs from a step; ``actor`` is the name in the audit."""

    def __init__(
        self,
        store: Store,
        *,
        actor: str | Actor,
        audit: Audit | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        self._record = AuditTrail(store, actor, audit, clock).record

    async def send(
        self,
        name: str,
        payload: object = None,
        *,
        key: str | None = None,
        dedupe_key: str | None = None,
        job_id: str | None = None,
    ) -> SentEvent:
        """Send an event; with ``job_id`` to that job alone. Refused if that job has ended."""
        if job_id is not None and key:
            raise BadOption("give a key or a job, not both: an event to a job has no other key")
        target = None if job_id is None else await get_record(self._store, job_id)
        if target is not None and is_terminal(target.status):
            raise Refused(
                f"job {target.id} is {target.status}: it waits for no event. "
                f"See `forge jobs show {target.id}`"
            )
        event = new_event(
            name, payload, key=key if target is None else target.id, dedupe_key=dedupe_key,
            what="send",
        )  # fmt: skip
        before = await self._state(event.name, event.key, target)
        (sent,) = await self._store.events.send([event])
        after = await self._state(event.name, event.key, target)
        detail: dict[str, Value] = {"resumed": sent.resumed, "size": len(event.payload)}
        if sent.duplicate:
            detail["duplicate"] = True
        subject = f"{event.name} {event.key}" if event.key else event.name
        ids = () if target is None else (target.id,)
        await self._record("send event", subject, detail, before=before, after=after, ids=ids)
        return sent

    async def retry_from(self, job_id: str, step: str) -> RetriedFrom:
        """Delete the step and all that began at the same time or later, and retry the job. Refused
        if it is not failed, dead or cancelled."""
        record = await get_record(self._store, job_id)
        steps = await read_records(self._store, record.id)
        chosen = find_step(record.id, steps, step)
        if record.status not in RETRYABLE or not await self._store.steps.retry_from(
            record.id, chosen.name
        ):
            remedy = (
                ""
                if is_terminal(record.status)
                else f": cancel it first, with `forge jobs cancel {record.id}`"
            )
            raise Refused(
                f"job {record.id} is {record.status}; retry applies to "
                f"{', '.join(RETRYABLE)}{remedy}"
            )
        kept = sum(one.began_at < chosen.began_at for one in steps)
        name = shown_step(chosen.name)
        current = await get_record(self._store, record.id)
        await self._record(
            "retry from step",
            record.id,
            {"step": name},
            before={"status": record.status.value, "steps": len(steps)},
            after={"status": current.status.value, "steps": kept},
            ids=(record.id,),
        )
        return RetriedFrom(id=record.id, step=name, deleted=len(steps) - kept, kept=kept)

    async def _state(self, name: str, key: str, target: JobRecord | None) -> dict[str, Value]:
        waiting = await self._store.events.waits(name=name, key=key, limit=_COUNTED)
        state: dict[str, Value] = {"waiting": len(waiting)}
        if target is not None:
            state["status"] = (await get_record(self._store, target.id)).status.value
        return state
