"""A worker dies at every write of a workflow, right before and right after it; another goes on.

Every effect happens at least once, every name is stored once, an effect whose value was stored does
not happen again, the event is taken once, and the result is that of a run without deaths.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forge_jobs.backends.url import open_store
from forge_jobs.config import EngineSettings
from forge_jobs.core.events import NewEvent
from forge_jobs.core.job import JobRecord
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import StepKind, StepRecord, is_internal, shown_step
from forge_jobs.engine.running.context import Context
from forge_jobs.engine.runtime import QueueHandle
from forge_jobs.store.store import Store
from tests.crash.dying_store import DyingStore, Moment
from tests.engine.rig import ENDED, Rig, until

SETTINGS = EngineSettings(lease_s=60.0, grace_s=0.0, shutdown_s=0.3, poll_s=0.1, control_s=0.1)
AT_ONCE = 8
# The names in the order of a run without deaths; "odd" and "refund" are on branches not taken.
EFFECTS: tuple[str, ...] = (
    "begin", "even", "loop", "loop", "loop", "fetch a", "fetch b", "fetch c", "fetch d", "stock",
    "ship", "close",
)  # fmt: skip
STORED = {
    "begin", "even", "loop", "loop#2", "loop#3", "sleep", "fetch[a]", "fetch[b]", "fetch[c]",
    "fetch[d]", "stock", "wait:approved", "ship", "wait:approved#2", "close",
}  # fmt: skip
RESULT = ["even", 0, 1, 2, "a", "b", "c", "d", "sold out", "ada", "ship", "nobody"]


class SoldOut(Exception):
    """An error that is a result."""


@dataclass
class Workflow:
    """The handler in one worker, and the effects of all workers."""

    effects: Counter[str]
    died: asyncio.Event = field(default_factory=asyncio.Event)

    def effect(self, name: str, value: Any = None) -> Any:
        if self.died.is_set():
            raise RuntimeError("a dead process has no effects")
        self.effects[name] += 1
        return value

    async def fetch(self, key: str) -> str:
        # Their values are stored by different writes.
        await asyncio.sleep("abcd".index(key) * 0.005)
        return self.effect(f"fetch {key}", key)

    def sell(self) -> None:
        self.effect("stock")
        raise SoldOut("sold out")

    async def run(self, ctx: Context, payload: Any) -> list[Any]:
        seen: list[Any] = []
        number: int = await ctx.step("begin", self.effect, "begin", 4)
        branch = "odd" if number % 2 else "even"
        seen.append(await ctx.step(branch, self.effect, branch, branch))
        for turn in range(3):
            seen.append(await ctx.step("loop", self.effect, "loop", turn))
        await ctx.sleep(0.02)
        keys = ctx.step.using
        seen += await asyncio.gather(*(keys(key=key)("fetch", self.fetch, key) for key in "abcd"))
        try:
            await keys(errors=(SoldOut,))("stock", self.sell)
        except SoldOut as error:
            seen.append(str(error))
        event = await ctx.wait_for("approved", key=payload, timeout=60)
        seen.append(event["by"])
        branch = "ship" if event["ok"] else "refund"
        seen.append(await ctx.step(branch, self.effect, branch, branch))
        # The event is taken: it does not answer a second wait.
        seen.append(await ctx.wait_for("approved", key=payload, timeout=0.02, default="nobody"))
        await ctx.step("close", self.effect, "close")
        return seen


@dataclass
class Ended:
    """How a workflow ended; ``writes`` are those of its first worker."""

    record: JobRecord
    steps: list[StepRecord]
    effects: Counter[str]
    writes: list[str]
    # What was stored, and which effects there had been, when the first worker died.
    stored_at_death: dict[str, bytes | None]
    effects_at_death: Counter[str]


async def run_workflow(
    store: Store, name: str, die_at: int | None, moment: Moment, *, sent_early: bool
) -> Ended:
    """Run one workflow in a queue of its own to its end; its first worker dies at that write."""
    effects: Counter[str] = Counter()
    dying = DyingStore(store, die_at, moment)
    first, second = Rig(dying), Rig(store)  # type: ignore[arg-type]
    first.on("work", Workflow(effects, dying.died).run)
    second.on("work", Workflow(effects).run)
    job = await second.add("work", name, queue=name)
    if sent_early:
        await _send(store, name)
    sender = asyncio.create_task(_send_when_suspended(second, job, name, is_sent=sent_early))
    stored: dict[str, bytes | None] = {}
    effects_then: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        handle = await first.runtime({name: 10}, settings=SETTINGS).start()
        stack.push_async_callback(handle.shutdown_graceful, 0)
        await _until_dead_or_ended(dying, second, job)
        if dying.died.is_set():
            stored = {step.name: step.value for step in await store.steps.page(job)}
            effects_then = Counter(effects)
            stack.push_async_callback((await _replace(second, name, handle)).shutdown_graceful, 0)
        record = await second.reaches(job)
        await sender
    steps = await store.steps.page(job)
    return Ended(record, steps, effects, dying.writes, stored, effects_then)


async def _replace(rig: Rig, queue: str, dead: QueueHandle) -> QueueHandle:
    runtime = rig.runtime({queue: 10}, settings=SETTINGS)
    return await runtime.with_replaced(dead.host_id).start()


async def _until_dead_or_ended(dying: DyingStore, rig: Rig, job: str) -> None:
    async def over() -> bool:
        return dying.died.is_set() or (await rig.record(job)).status in ENDED

    await until(over, "the worker dies or the workflow ends")


async def _send(store: Store, key: str) -> None:
    payload = msgspec.json.encode({"by": "ada", "ok": True})
    await store.events.send([NewEvent(name="approved", key=key, payload=payload)])


async def _send_when_suspended(rig: Rig, job: str, key: str, *, is_sent: bool) -> None:
    if not is_sent:
        await rig.reaches(job, JobStatus.SUSPENDED)
        await _send(rig.store, key)


def check(ended: Ended) -> None:
    assert ended.record.status is JobStatus.DONE, ended.record.last_error
    assert msgspec.json.decode(ended.record.result or b"null") == RESULT
    assert set(ended.effects) == set(EFFECTS)
    by_name = {step.name: step for step in ended.steps}
    assert len(by_name) == len(ended.steps)
    assert {shown_step(name) for name in by_name if not is_internal(name)} == STORED
    assert by_name["wait:approved"].kind is StepKind.EVENT
    assert by_name["wait:approved#2"].kind is StepKind.TIMEOUT
    for name, value in ended.stored_at_death.items():
        assert by_name[name].value == value, name
    # One effect per name and call, and one more for what was open at the death.
    again = ended.effects - Counter(EFFECTS)
    assert again <= Counter(set(EFFECTS)), again
    done = Counter(map(_effect_of, ended.stored_at_death))
    for name in set(EFFECTS):
        open_then = ended.effects_at_death[name] - done[name]
        assert ended.effects[name] <= Counter(EFFECTS)[name] + open_then, name


def _effect_of(identity: str) -> str:
    return shown_step(identity).partition("#")[0].replace("[", " ").removesuffix("]")


class Stores:
    """An empty store for each workflow; on Postgres one for all, where each has its own queue."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder

    async def run(
        self, name: str, die_at: int | None, moment: Moment, *, sent_early: bool = False
    ) -> Ended:
        url = f"sqlite:///{self._folder}/{name}.db" if "sqlite" in self._url else self._url
        store = open_store(url)
        await store.open()
        try:
            return await run_workflow(store, name, die_at, moment, sent_early=sent_early)
        finally:
            await store.close()


async def _die_at_each(stores: Stores, places: Iterable[int], moment: Moment) -> list[Ended]:
    """Die at each of these writes; the event is sent early for every second of them."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(place: int) -> Ended:
        async with room:
            name = f"{moment}-{place}"
            ended = await stores.run(name, place, moment, sent_early=place % 2 == 0)
        try:
            check(ended)
        except AssertionError as error:
            error.add_note(f"died {moment} write {place} of {ended.writes}")
            raise
        return ended

    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(one(place)) for place in places]
    return [run.result() for run in runs]


def _write_numbers(url: str, moment: Moment, writes: int) -> range:
    """Every write; on Postgres every fifth one, unless ``CRASH_EVERY=1`` asks for all. The first of
    them is another one each day, and not the same for both moments, so that the days of a week
    reach every write."""
    every = int(os.environ.get("CRASH_EVERY", "5")) if url.startswith("postgres") else 1
    day = datetime.now(UTC).toordinal() + 2 * list(Moment).index(moment)
    return range(1 + day % every, writes + 1, every)


@pytest.mark.slow
@pytest.mark.parametrize("moment", list(Moment))
async def test_a_worker_dies_at_every_write(any_url: str, tmp_path: Path, moment: Moment) -> None:
    stores = Stores(any_url, tmp_path)
    calm = await stores.run("calm", None, moment)
    check(calm)
    assert calm.effects == Counter(EFFECTS)
    # Of the twelve steps at most those of the gather share a write; two checks and four ends.
    assert len(calm.writes) >= 9 + 2 + 4, calm.writes
    ended = await _die_at_each(stores, _write_numbers(any_url, moment, len(calm.writes)), moment)
    died = [one for one in ended if one.record.crashes]
    repeated = sum(one.effects.total() - len(EFFECTS) for one in ended)
    print(f"{moment} {len(ended)} of {len(calm.writes)} writes: {len(died)} died, {repeated} again")
    assert len(died) >= len(ended) // 2, [one.writes for one in ended]
    if moment is Moment.BEFORE:
        # Some effect happened again: otherwise no death came between an effect and its value.
        assert any(one.effects.total() > len(EFFECTS) for one in ended)
