"""The clients of the simulation: a producer that enqueues, and an operator who changes things.

Both have a faulty connection of their own and behave like careful callers: they repeat calls that
certainly had no effect, and calls that may have had one only with a dedupe key.
"""

from collections.abc import Callable, Sequence

from forge_jobs.core.errors import NotFound, StoreError, Unavailable
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.selection import BulkAction, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.queues import QueueChange
from forge_jobs.store.store import Store
from rigs.simulation.checkers import OPERATOR
from rigs.simulation.clocks import pass_time
from rigs.simulation.dice import Dice
from rigs.simulation.history import Acknowledged
from rigs.simulation.node import SimContext
from rigs.simulation.plan import QUEUES, new_job

_MAX_ATTEMPTS = 50
_SLOTS = (0, 1, 3, 10, 30)
NORMAL_SLOTS = 10


class Producer:
    """Enqueues all jobs, a few at a time, and remembers what was acknowledged."""

    def __init__(
        self,
        sim: SimContext,
        store: Store,
        dice: Dice,
        *,
        make: Callable[[int, Dice], NewJob] = new_job,
        first: int = 0,
    ) -> None:
        self._sim = sim
        self._store = store
        self._dice = dice
        self._make = make
        self._first = first
        self.acked: list[str] = []

    async def produce(self, jobs: int, over_s: float) -> None:
        """Spread that many jobs over that much virtual time, in bursts."""
        number = 0
        while number < jobs:
            count = min(jobs - number, 1 + int(self._dice.skewed(0, 12)))
            first = self._first + number
            wanted = [self._make(first + index, self._dice) for index in range(count)]
            await self._enqueue(first, wanted)
            number += count
            await pass_time(self._dice.between(0, 2 * over_s * count / jobs))

    async def _enqueue(self, first: int, jobs: Sequence[NewJob]) -> None:
        keyed = all(job.dedupe_key is not None for job in jobs)
        for _ in range(_MAX_ATTEMPTS):
            try:
                answers = await self._store.jobs.enqueue(jobs)
            except Unavailable:
                await pass_time(self._dice.between(0.05, 1))
            except StoreError:
                # Possibly stored: a repeat without dedupe keys could store them twice.
                if not keyed:
                    return
            else:
                return self._record_acknowledged(first, answers)

    def _record_acknowledged(self, first: int, answers: Sequence[Enqueued]) -> None:
        for index, answer in enumerate(answers):
            self._sim.history.add(
                Acknowledged(
                    self._sim.now(), "producer", first + index, answer.id, answer.duplicate
                )
            )
            self.acked.append(answer.id)


class Operator:
    """Cancels, retries, deletes, pauses and changes slots at random times."""

    def __init__(self, sim: SimContext, store: Store, dice: Dice, producer: Producer) -> None:
        self._sim = sim
        self._store = store
        self._dice = dice
        self._producer = producer

    async def act_at_random(self, until_s: float) -> None:
        """Act at random times until the virtual time ``until_s``."""
        while True:
            pause_s = self._dice.between(0.1, 4)
            if self._sim.loop.time() + pause_s >= until_s:
                return
            await pass_time(pause_s)
            try:
                await self._act()
            except (StoreError, NotFound):
                continue

    async def restore(self) -> None:
        """Resume every queue with its normal slots. The connection has no faults any more."""
        for queue in QUEUES:
            await self._store.queues.change(queue, QueueChange(slots=NORMAL_SLOTS, paused=False))
            await self._store.queues.open_gate(queue)
        for process in await self._store.processes.all():
            try:
                await self._store.processes.quiet(process.host_id, quiet=False)
            except NotFound:
                continue

    async def _act(self) -> None:
        roll = self._dice.roll()
        if roll < 0.45:
            await self._cancel()
        elif roll < 0.55:
            await self._retry()
        elif roll < 0.60:
            await self._store.jobs.act(BulkAction.RUN_NOW, self._pick_jobs(), limit=10)
        elif roll < 0.63:
            await self._store.jobs.act(BulkAction.DELETE, self._pick_jobs(), limit=10)
        elif roll < 0.78:
            await self._pause()
        elif roll < 0.90:
            await self._slots()
        else:
            await self._quiet()

    async def _cancel(self) -> None:
        await self._store.jobs.act(
            BulkAction.CANCEL, self._pick_jobs(), reason="no longer wanted", limit=10
        )

    async def _retry(self) -> None:
        ended = Filter(statuses=(JobStatus.DEAD, JobStatus.CANCELLED), queue="main")
        await self._store.jobs.act(
            BulkAction.RETRY, Selection(filter=ended), limit=1 + self._dice.index(3)
        )

    async def _pause(self) -> None:
        queue = self._dice.pick(QUEUES)
        paused = self._dice.chance(0.5)
        self._sim.fault(OPERATOR, "pause" if paused else "unpause", queue)
        await self._store.queues.change(queue, QueueChange(paused=paused))

    async def _slots(self) -> None:
        queue, slots = self._dice.pick(QUEUES), self._dice.pick(_SLOTS)
        self._sim.fault(OPERATOR, "slots", f"{queue} {slots}")
        await self._store.queues.change(queue, QueueChange(slots=slots))

    async def _quiet(self) -> None:
        processes = await self._store.processes.all()
        if processes:
            host, quiet = self._dice.pick(processes).host_id, self._dice.chance(0.4)
            self._sim.fault(OPERATOR, "quiet" if quiet else "unquiet", host)
            await self._store.processes.quiet(host, quiet=quiet)

    def _pick_jobs(self) -> Selection:
        known = self._producer.acked
        if not known:
            return Selection(filter=Filter(queue="nobody"))
        # Mostly the newest jobs: older ones are terminal.
        newest = known[-12:] if self._dice.chance(0.7) else known
        return Selection(ids=(self._dice.pick(newest),))
