"""What a suspended job waits for, in words and as the command that sends it."""

import shlex
from collections.abc import Sequence
from typing import Final

from forge_jobs.core.events import WaitRecord
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.job import JobRecord
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import shown_step
from forge_jobs.store.store import Store

from .views import Reason, WaitView, optional_datetime

# A wait has at most 32 names, each with two topics if it has no key.
_MAX_TOPICS: Final = 64
_NAMED: Final = 4


async def job_waits(store: Store, record: JobRecord) -> list[WaitRecord]:
    """The topics of a suspended job; empty for other jobs."""
    if record.status is not JobStatus.SUSPENDED:
        return []
    return await store.events.waits(job_id=record.id, limit=_MAX_TOPICS)


def wait_view(wait: WaitRecord) -> WaitView:
    """A wait for display."""
    return WaitView(
        job_id=wait.job_id,
        kind=wait.kind,
        queue=wait.queue,
        name=wait.name,
        key=wait.key,
        step=shown_step(wait.step),
        began_at=to_datetime(wait.began_at),
        deadline=optional_datetime(wait.deadline),
        command=send_command(wait.name, wait.key, wait.job_id),
    )


def sendable(waits: Sequence[WaitRecord]) -> list[WaitRecord]:
    """One topic per event: a wait without a key also takes what is sent to its job alone, and that
    topic stands for both."""
    own = {wait.name for wait in waits if wait.key == wait.job_id}
    return [wait for wait in waits if wait.key or wait.name not in own]


def wait_reason(waits: Sequence[WaitRecord]) -> Reason:
    """Why a suspended job is not running."""
    topics = sendable(waits)
    if not topics:
        return Reason(code="resuming", text="its event was sent: it is about to go on")
    named = [_topic_text(wait) for wait in topics[:_NAMED]]
    if len(topics) > _NAMED:
        named.append(f"{len(topics) - _NAMED} others")
    first = topics[0]
    return Reason(
        code="event",
        text=f"it waits for {' or '.join(named)}; run now would only make it wait again",
        until=optional_datetime(first.deadline),
        remedy=send_command(first.name, first.key, first.job_id),
    )


def send_command(name: str, key: str, job_id: str) -> str:
    """The command that sends what a job waits for."""
    if key and key == job_id:
        return f"forge send {name} --job {job_id}"
    return f"forge send {name} --key {shlex.quote(key)}" if key else f"forge send {name}"


def _topic_text(wait: WaitRecord) -> str:
    if wait.key == wait.job_id:
        return f"the event {wait.name!r}, sent to it or without a key"
    return (
        f"the event {wait.name!r} with the key {wait.key!r}"
        if wait.key
        else (f"the event {wait.name!r} without a key")
    )
