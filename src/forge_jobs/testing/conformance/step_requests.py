"""Steps, waits and events as a worker sends them, and what a store holds of them."""

from typing import Any

import msgspec

from forge_jobs.core.events import NewEvent, TakenEvent, Wait, WaitTopic, topic_of
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import ClaimedJob, Enqueued
from forge_jobs.core.outcome import Parked
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import StepKind, StepRecord, StepWrite
from forge_jobs.store.jobs import StepAnswer, Verdict, WaitCheck
from forge_jobs.store.store import Store

from .worker import Process, claim_of, enqueue, record

# Texts that a store must give back as they are. Control characters, among them the separator of
# name and key, come from the engine.
HOSTILE = ("a'b\"c\\d", "%s $1 :x ?", "é → 漢字 🎉", "x\x1fy", "A", "a", "Ä", " ", "#2", "null")


def step(job: ClaimedJob, name: str, value: bytes | None = b"1", **fields: Any) -> StepWrite:
    """A step of a claimed job."""
    kind: StepKind = fields.pop("kind", StepKind.STEP)
    began_at: Instant = fields.pop("began_at", 10)
    ended_at: Instant = fields.pop("ended_at", 20)
    return StepWrite(job.key, job.epoch, name, kind, began_at, ended_at, value, **fields)


def stored(write: StepWrite) -> StepRecord:
    """The record of a step that is stored."""
    return StepRecord(
        write.name, write.kind, write.epoch, write.began_at, write.ended_at, write.value,
        write.fingerprint, 0 if write.value is None else len(write.value),
    )  # fmt: skip


def topic(name: str = "paid", key: str = "1", *, after: int = 0, since: Instant = 0) -> WaitTopic:
    """A topic of a wait."""
    return WaitTopic(topic_of(name, key), after, since)


def wait(
    *topics: WaitTopic,
    name: str = "wait",
    began_at: Instant = 30,
    deadline: Instant | None = None,
) -> Wait:
    """A wait, by default for the event ``paid`` with the key 1."""
    return Wait(name, began_at, topics or (topic(),), deadline)


def event(name: str = "paid", key: str = "1", payload: bytes = b"null", **fields: Any) -> NewEvent:
    """An event, by default ``paid`` with the key 1."""
    return NewEvent(name=name, key=key, payload=payload, **fields)


async def send(store: Store, name: str = "paid", key: str = "1", **fields: Any) -> int:
    """Send one event; how many jobs it resumed."""
    [answer] = await store.events.send([event(name, key, **fields)])
    assert not answer.duplicate
    return answer.resumed


async def write_steps(worker: Process, *steps: StepWrite) -> list[StepAnswer]:
    """An exchange with steps alone; the answers."""
    return list((await worker.exchange(steps=steps)).steps)


async def verdicts(worker: Process, *steps: StepWrite) -> list[Verdict]:
    """Likewise; the verdicts."""
    return [answer.verdict for answer in await write_steps(worker, *steps)]


async def check_wait(worker: Process, job: ClaimedJob, asked: Wait) -> StepAnswer:
    """An exchange that asks for the event of a wait; the answer."""
    [answer] = (await worker.exchange(waits=[WaitCheck(claim_of(job), asked)])).waits
    return answer


async def suspended(
    store: Store,
    worker: Process,
    asked: Wait | None = None,
    *,
    wake_at: Instant | None = None,
    steps: tuple[StepWrite, ...] = (),
    **options: Any,
) -> Enqueued:
    """Enqueue a job and suspend it with a wait; there must be no event for it."""
    answer = await enqueue(store, **options)
    job = await worker.claim_one(options.get("queue", "q"))
    assert job.key == answer.key
    await park(worker, job, asked, wake_at=wake_at, steps=steps)
    assert (await record(store, answer.id)).status is JobStatus.SUSPENDED
    return answer


async def park(
    worker: Process,
    job: ClaimedJob,
    asked: Wait | None = None,
    *,
    wake_at: Instant | None = None,
    steps: tuple[StepWrite, ...] = (),
) -> None:
    """End a run with a wait. Its deadline is the time to wake if no other is given."""
    asked = asked or wait()
    outcome = Parked(asked, wake_at or asked.deadline, steps)
    assert await worker.finish(job, outcome) is Verdict.APPLIED


async def history(store: Store, job_id: str) -> dict[str, StepRecord]:
    """All steps of a job by name, in the order of a page."""
    return {one.name: one for one in await store.steps.page(job_id, limit=10_000)}


async def kinds(store: Store, job_id: str) -> dict[str, StepKind]:
    """The kinds of all steps of a job."""
    return {name: one.kind for name, one in (await history(store, job_id)).items()}


async def topics_of(store: Store, job_id: str) -> list[tuple[str, str]]:
    """The topics that a job waits for."""
    return [(one.name, one.key) for one in await store.events.waits(job_id=job_id, limit=100)]


async def status_of(store: Store, job_id: str) -> JobStatus:
    """The state of a job."""
    return (await record(store, job_id)).status


def taken(found: StepRecord | None) -> TakenEvent:
    """The event in a step of kind *event*."""
    assert found is not None
    assert found.kind is StepKind.EVENT
    assert found.value is not None
    return msgspec.json.decode(found.value, type=TakenEvent)
