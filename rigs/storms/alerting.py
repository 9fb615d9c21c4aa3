"""The alert storm: episodes open and close while every process is killed at random.

Queues that no worker serves fill and empty, a rule watches each of them, and the workers look,
store the messages and deliver them. The receiver refuses some messages and takes some without an
answer. It drops ids that it has seen; then each episode must have come once opened and once closed,
in this order, by exactly two jobs.
"""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forge_jobs import Forge
from forge_jobs.core.alert_rule import new_rule
from forge_jobs.core.alert_values import ALERT_KIND
from forge_jobs.core.alerts import Episode
from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import BulkAction, Filter, Selection
from forge_jobs.store.alerts import AlertRules
from forge_jobs.store.store import Store
from rigs.storms.arguments import StormArguments
from rigs.storms.databases import open_database
from rigs.storms.front_door import ForgeWorker, worker_command
from rigs.storms.rig import StormFailed
from rigs.storms.webhook_receiver import Receiver, receiving

BACKENDS = ("sqlite", "postgres")
# The name in alerting_jobs, which cannot be imported without its environment variables.
# Rules for every queue leave out the queue "alerts", which delivers.
QUEUES = "served,alerts"
RULE = "full"


@dataclass(frozen=True)
class AlertStormOptions:
    """``rounds`` in which ``queues`` queues fill and empty; a kill every ``every_s`` on average."""

    rounds: int = 9
    queues: int = 5
    workers: int = 4
    every_s: float = 1.2
    lease_s: float = 1.0
    drain_s: float = 120.0
    refused: float = 0.1
    unanswered: float = 0.2
    seed: int = 0


QUICK = AlertStormOptions(rounds=2, queues=3, workers=2, every_s=1.0, refused=0.0)


def storm(backend: str, arguments: StormArguments) -> bool:
    """Run the storm; True if every check passed."""
    options = arguments.apply(AlertStormOptions(), QUICK)
    print(
        f"Alert storm on {backend}: {options.rounds} x {options.queues} episodes, "
        f"{options.workers} workers, one killed every {options.every_s:g} s.",
        flush=True,
    )
    try:
        with (
            arguments.folder() as folder,
            open_database(backend, folder) as database,
            receiving() as receiver,
        ):
            rig = AlertRig(options, folder, database.url, receiver)
            asyncio.run(rig.run())
            faults = check_messages(rig.episodes, receiver, rig.alert_jobs, options)
            print(
                f"  {len(rig.episodes)} episodes, {rig.alert_jobs} jobs, {rig.kills} kills, "
                f"{len(receiver.requests)} messages taken, {len(receiver.by_id)} ids"
            )
            if not rig.kills:
                raise StormFailed("no worker was killed: the run proves nothing")
            if faults:
                raise StormFailed("; ".join(faults[:5]))
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


def check_messages(
    episodes: Sequence[Episode], receiver: Receiver, jobs: int, options: AlertStormOptions
) -> list[str]:
    """What is wrong with the messages of these episodes."""
    faults: list[str] = []
    for queue, count in sorted(Counter(one.subject for one in episodes).items()):
        if count != options.rounds:
            faults.append(f"{queue} had {count} episodes in {options.rounds} rounds")
    expected = {f"{one.id}.{phase}" for one in episodes for phase in ("opened", "closed")}
    order = list(receiver.by_id)
    faults += [f"no message {missing}" for missing in sorted(expected - set(order))]
    faults += [f"a message of no episode: {more}" for more in sorted(set(order) - expected)]
    for one in episodes:
        opened, closed = f"{one.id}.opened", f"{one.id}.closed"
        if opened in order and closed in order and order.index(closed) < order.index(opened):
            faults.append(f"{one.id} closed before it opened")
    if len(episodes) != options.rounds * options.queues:
        faults.append(f"{len(episodes)} episodes instead of {options.rounds * options.queues}")
    if jobs != 2 * len(episodes):
        faults.append(f"{jobs} jobs for {len(episodes)} episodes")
    return faults


class AlertRig:
    """Fills and empties queues while it kills workers."""

    def __init__(
        self, options: AlertStormOptions, folder: Path, url: str, receiver: Receiver
    ) -> None:
        self._options = options
        self._folder = folder
        self._url = url
        self._receiver = receiver
        self._rng = random.Random(options.seed)
        self._answers = random.Random(options.seed + 1)
        self._workers: list[ForgeWorker] = []
        self.kills = 0
        self.alert_jobs = 0
        self.episodes: list[Episode] = []
        receiver.answer = self._answer

    async def run(self) -> None:
        options = self._options
        forge = Forge(self._url)
        store = await forge.aready()
        rule = new_rule(RULE, "backlog", above=0, clear=0, url=self._receiver.url)
        await AlertRules(store).put(RULE, lambda known: rule)
        killer: asyncio.Task[None] | None = None
        try:
            with (self._folder / "workers.log").open("ab") as log:
                for _ in range(options.workers):
                    self._start_worker(log)
                killer = asyncio.create_task(self._kill_at_random(log))
                for _ in range(options.rounds):
                    await self._one_round(store)
                killer.cancel()
                await self._wait("every message", lambda: self._are_delivered(forge))
            self.episodes = list((await AlertRules(store).states())[RULE].closed)
            counted = await store.metrics.count(Filter(kind=ALERT_KIND), cap=10_000)
            self.alert_jobs = counted.jobs
        finally:
            if killer is not None:
                killer.cancel()
            for worker in self._workers:
                worker.kill()
            await forge.aclose()

    async def _one_round(self, store: Store) -> None:
        names = [f"full{number}" for number in range(self._options.queues)]
        await store.jobs.enqueue([NewJob(kind="waits", queue=name) for name in names])
        await self._wait("open episodes", lambda: self._are_open(store, len(names)))
        for name in names:
            await store.jobs.act(BulkAction.DELETE, Selection(filter=Filter(queue=name)), limit=10)
        await self._wait("closed episodes", lambda: self._are_open(store, 0))

    async def _are_open(self, store: Store, count: int) -> bool:
        state = (await AlertRules(store).states()).get(RULE)
        return state is not None and len(state.open) == count

    async def _are_delivered(self, forge: Forge) -> bool:
        # Not to wait for the back-off of messages that were refused several times.
        await forge.jobs(kind=ALERT_KIND, status="failed").arun_now()
        wanted = 2 * self._options.rounds * self._options.queues
        return len(self._receiver.by_id) >= wanted

    async def _kill_at_random(self, log: Any) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * self._options.every_s)
            worker = self._workers.pop(self._rng.randrange(len(self._workers)))
            worker.kill()
            self.kills += 1
            self._start_worker(log)

    async def _wait(self, what: str, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + self._options.drain_s
        while not await condition():
            if time.monotonic() > deadline:
                raise StormFailed(f"{what} did not come within {self._options.drain_s:.0f} s")
            await asyncio.sleep(0.2)

    def _start_worker(self, log: Any) -> None:
        environment = {**os.environ, "STORM_URL": self._url, "FORGE_ALERT_HOSTS": "127.0.0.1"}
        command = worker_command(
            "rigs.storms.alerting_jobs:forge", QUEUES, lease_s=self._options.lease_s, grace_s=0.1
        )
        self._workers.append(ForgeWorker(command, environment, log))

    def _answer(self) -> int:
        roll = self._answers.random()
        if roll < self._options.refused:
            return 503
        return 0 if roll < self._options.refused + self._options.unanswered else 204
