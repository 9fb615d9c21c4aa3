"""The people of a simulated world: a producer that enqueues, an operator who interferes.

Both reach the store over a faulty line of their own and behave as careful callers do: they repeat
what certainly had no effect, and what may have had one only under a dedupe key.
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
from rigs.simulation.history import Acked
from rigs.simulation.node import Ground
from rigs.simulation.plan import QUEUES, new_job

_MAX_TRIES = 50
_SLOTS = (0, 1, 3, 10, 30)
NORMAL_SLOTS = 10


class Producer:
    """Enqueues all jobs of the world, a few at a time; remembers what it was promised."""

    def __init__(
        self,
        ground: Ground,
        store: Store,
        dice: Dice,
        *,
        make: Callable[[int, Dice], NewJob] = new_job,
        first: int = 0,
    ) -> None:
        self._ground = ground
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
            wanted = [self._make(first + place, self._dice) for place in range(count)]
            await self._store_them(first, wanted)
            number += count
            await pass_time(self._dice.between(0, 2 * over_s * count / jobs))

    async def _store_them(self, first: int, jobs: Sequence[NewJob]) -> None:
        keyed = all(job.dedupe_key is not None for job in jobs)
        for _ in range(_MAX_TRIES):
            try:
                answers = await self._store.jobs.enqueue(jobs)
            except Unavailable:
                await pass_time(self._dice.between(0.05, 1))
            except StoreError:
                # Perhaps stored, perhaps not: a repeat without keys might store them twice.
                if not keyed:
                    return
            else:
                return self._remember(first, answers)

    def _remember(self, first: int, answers: Sequence[Enqueued]) -> None:
        for place, answer in enumerate(answers):
            self._ground.history.add(
                Acked(self._ground.now(), "producer", first + place, answer.id, answer.duplicate)
            )
            self.acked.append(answer.id)


class Operator:
    """Cancels, retries, deletes, pauses and changes slots; now and then, and without asking."""

    def __init__(self, ground: Ground, store: Store, dice: Dice, producer: Producer) -> None:
        self._ground = ground
        self._store = store
        self._dice = dice
        self._producer = producer

    async def meddle(self, until_s: float) -> None:
        """Act at random until virtual time has reached ``until_s``."""
        while True:
            pause_s = self._dice.between(0.1, 4)
            if self._ground.loop.time() + pause_s >= until_s:
                return
            await pass_time(pause_s)
            try:
                await self._act()
            except (StoreError, NotFound):
                continue

    async def restore(self) -> None:
        """Open every queue again with its normal slots. The line is calm by now."""
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
            await self._store.jobs.act(BulkAction.RUN_NOW, self._some(), limit=10)
        elif roll < 0.63:
            await self._store.jobs.act(BulkAction.DELETE, self._some(), limit=10)
        elif roll < 0.78:
            await self._pause()
        elif roll < 0.90:
            await self._slots()
        else:
            await self._quiet()

    async def _cancel(self) -> None:
        await self._store.jobs.act(
            BulkAction.CANCEL, self._some(), reason="no longer wanted", limit=10
        )

    async def _retry(self) -> None:
        ended = Filter(statuses=(JobStatus.DEAD, JobStatus.CANCELLED), queue="main")
        await self._store.jobs.act(
            BulkAction.RETRY, Selection(filter=ended), limit=1 + self._dice.index(3)
        )

    async def _pause(self) -> None:
        queue = self._dice.pick(QUEUES)
        paused = self._dice.chance(0.5)
        self._ground.fault(OPERATOR, "pause" if paused else "unpause", queue)
        await self._store.queues.change(queue, QueueChange(paused=paused))

    async def _slots(self) -> None:
        queue, slots = self._dice.pick(QUEUES), self._dice.pick(_SLOTS)
        self._ground.fault(OPERATOR, "slots", f"{queue} {slots}")
        await self._store.queues.change(queue, QueueChange(slots=slots))

    async def _quiet(self) -> None:
        processes = await self._store.processes.all()
        if processes:
            host, quiet = self._dice.pick(processes).host_id, self._dice.chance(0.4)
            self._ground.fault(OPERATOR, "quiet" if quiet else "unquiet", host)
            await self._store.processes.quiet(host, quiet=quiet)

    def _some(self) -> Selection:
        known = self._producer.acked
        if not known:
            return Selection(filter=Filter(queue="nobody"))
        # Mostly the newest: old ones have long ended.
        newest = known[-12:] if self._dice.chance(0.7) else known
        return Selection(ids=(self._dice.pick(newest),))
