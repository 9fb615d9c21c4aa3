"""The operator of workflows: sends events, and cancels, retries and resumes workflows at random."""

from collections.abc import Coroutine
from typing import Any

import msgspec

from forge_jobs.core.errors import ForgeError
from forge_jobs.core.events import NewEvent
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.store.store import Store
from rigs.simulation.clocks import pass_time
from rigs.simulation.dice import Dice
from rigs.simulation.node import SimContext
from rigs.simulation.operators import Producer
from rigs.simulation.workflows import EVENT, FIRST_NUMBER, SHARED_KEYS, own_key, workflow_job

_LAST = 8


class WorkflowOperator:
    """Has a faulty connection, and repeats nothing that may have had an effect."""

    def __init__(self, sim: SimContext, store: Store, dice: Dice) -> None:
        self._sim = sim
        self._store = store
        self._dice = dice
        self._producer = Producer(sim, store, dice, make=workflow_job, first=FIRST_NUMBER)

    def work(self, workflows: int, until_s: float) -> list[Coroutine[Any, Any, None]]:
        """Enqueue that many workflows, and act until the virtual time ``until_s``."""
        if not workflows:
            return []
        return [self._producer.produce(workflows, until_s * 0.8), self.act_at_random(until_s)]

    async def act_at_random(self, until_s: float) -> None:
        """Act at random times until the virtual time ``until_s``."""
        while True:
            pause_s = self._dice.between(0.2, 4)
            if self._sim.loop.time() + pause_s >= until_s:
                return
            await pass_time(pause_s)
            try:
                await self._act()
            except ForgeError:
                continue

    async def answer_waits(self) -> None:
        """Once a second, send what suspended jobs wait for. The connection has no faults any
        more."""
        while True:
            waits = await self._store.events.waits(limit=100)
            topics = dict.fromkeys((wait.name, wait.key) for wait in waits)
            if topics:
                await self._store.events.send([self._event(key) for _, key in topics])
            await pass_time(1.0)

    async def _act(self) -> None:
        roll = self._dice.roll()
        if roll < 0.60:
            await self._send()
        elif roll < 0.70:
            await self._store.jobs.act(
                BulkAction.CANCEL, self._pick(), reason="no longer wanted", limit=1
            )
        elif roll < 0.80:
            await self._store.jobs.act(BulkAction.RUN_NOW, self._pick(), limit=1)
        elif roll < 0.88:
            await self._store.jobs.act(BulkAction.RETRY, self._pick(), limit=1)
        elif roll < 0.97:
            await self._retry_from()
        else:
            await self._store.jobs.act(BulkAction.DELETE, self._pick(), limit=1)

    async def _send(self) -> None:
        """One event, or two in a row; to all that wait for a key, to one workflow, or to one job,
        whether or not it waits already."""
        known = self._producer.acked
        own = own_key(FIRST_NUMBER + max(len(known) - 1 - self._dice.index(_LAST), 0))
        keys = [*SHARED_KEYS, own, ""]
        if known:
            keys.append(self._dice.pick(known[-_LAST:]))
        key = self._dice.pick(keys)
        dedupe_key = f"d{self._dice.index(20)}" if self._dice.chance(0.2) else None
        count = 2 if self._dice.chance(0.25) else 1
        await self._store.events.send([self._event(key, dedupe_key) for _ in range(count)])

    async def _retry_from(self) -> None:
        known = self._producer.acked
        if not known:
            return
        job = self._dice.pick(known)
        steps = await self._store.steps.page(job, values=False)
        if steps:
            await self._store.steps.retry_from(job, self._dice.pick(steps).name)

    def _event(self, key: str, dedupe_key: str | None = None) -> NewEvent:
        payload = msgspec.json.encode(self._sim.runs.number())
        return NewEvent(name=EVENT, key=key, payload=payload, dedupe_key=dedupe_key, keep_s=3_600.0)

    def _pick(self) -> Selection:
        known = self._producer.acked
        return Selection(ids=(self._dice.pick(known[-_LAST:]),) if known else ())
