"""Actions on one stored job, for its handle: applied, or refused with the reason."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from forge_jobs.core.errors import BadOption, KeyTaken, NotFound, Refused
from forge_jobs.core.instant import Duration, from_datetime, seconds
from forge_jobs.core.selection import Acted, BulkAction, Selection
from forge_jobs.core.status import RETRYABLE, WAITING, JobStatus
from forge_jobs.store.store import Store

_APPLIES_TO: Final[Mapping[BulkAction, tuple[JobStatus, ...]]] = {
    BulkAction.RETRY: RETRYABLE,
    BulkAction.RUN_NOW: (JobStatus.SCHEDULED, JobStatus.FAILED, JobStatus.SUSPENDED),
    BulkAction.RESCHEDULE: WAITING,
}


async def act_on(store: Store, job_id: str, action: BulkAction, **how: Any) -> Acted:
    """Apply an action to one job; NotFound, KeyTaken or Refused if it was not applied."""
    acted = await store.jobs.act(action, Selection(ids=(job_id,)), limit=1, **how)
    if acted.missing:
        raise not_found(job_id)
    if acted.key_taken:
        raise KeyTaken(
            f"job {job_id} cannot be retried: another live job holds its dedupe key; "
            "wait until that one has ended, or cancel it"
        )
    if acted.skipped:
        record = await store.jobs.get(job_id)
        state = "gone" if record is None else str(record.status)
        raise Refused(
            f"job {job_id} is {state}: {action.replace('_', ' ')} applies to jobs that are "
            f"{', '.join(_APPLIES_TO[action])}"
        )
    return acted


def due_fields(delay: Duration | None, at: datetime | None, *, where: str) -> dict[str, Any]:
    """The new due time of a reschedule, as ``JobStore.act`` takes it."""
    if (delay is None) == (at is None):
        raise BadOption(f"{where}: give one of delay= (such as '10m') and at= (an aware datetime)")
    if delay is not None:
        return {"delay_s": seconds(delay, field=f"{where}: delay")}
    if not isinstance(at, datetime):
        raise BadOption(f"{where}: at={at!r} must be an aware datetime; for a span use delay=")
    return {"run_at": from_datetime(at, field=f"{where}: at")}


def not_found(job_id: str) -> NotFound:
    """The error for an id that the store does not know."""
    return NotFound(
        f"job {job_id} does not exist here: it was deleted, is past its retention, or belongs "
        "to another database"
    )
