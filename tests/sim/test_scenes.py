"""Single faults in a healthy cluster, in virtual time: the recovery and its time bound."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from forge_jobs.config import EngineSettings
from forge_jobs.core.job import JobRecord, NewJob
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.engine.claiming.local_queue import LocalQueue
from forge_jobs.engine.running.handover import Handover
from forge_jobs.store.jobs import Verdict
from rigs.simulation.all_checkers import check_history
from rigs.simulation.clocks import pass_time
from rigs.simulation.dice import Dice
from rigs.simulation.final import read_final
from rigs.simulation.history import Finished, HandlerRan, Transitioned
from rigs.simulation.node import Node, SimContext
from rigs.simulation.operators import NORMAL_SLOTS
from rigs.simulation.plan import FRESH_KIND, QUEUES, WORK_KIND, Behaviour, Needs, Plan
from rigs.simulation.world import logs_disabled, make_context, remove_nodes

LEASE_S = 15.0
SEEDS = range(5)


class Scene:
    """A healthy cluster of two nodes, with helpers for the tests."""

    def __init__(self, seed: int) -> None:
        self.sim: SimContext = make_context(seed, EngineSettings(lease_s=LEASE_S))
        self.nodes: list[Node] = []
        self._seed = seed

    async def boot(self, who: str, *, fresh: bool = True) -> Node:
        node = Node(self.sim, who, Dice(f"{self._seed}:{who}"), fresh=fresh)
        self.nodes.append(node)
        node.boot()
        await self.until(lambda: node.handle is not None, 10)
        return node

    async def open_queues(self) -> None:
        """Before any node starts: the slot checker reads the slots of a queue from the history."""
        for queue in QUEUES:
            await self.sim.store.queues.ensure(queue, slots=NORMAL_SLOTS)
            self.sim.recorder.slots_changed("scene", queue, NORMAL_SLOTS)

    async def enqueue(
        self, work_s: float, behaviour: Behaviour = Behaviour.SLOW, **options: object
    ) -> str:
        payload = msgspec.json.encode(Plan(number=1, behaviour=behaviour, work_s=work_s))
        job = NewJob(kind=WORK_KIND, queue="main", payload=payload)
        job = msgspec.structs.replace(job, **options)
        return (await self.sim.store.jobs.enqueue([job]))[0].id

    async def job(self, job_id: str) -> JobRecord:
        record = await self.sim.store.jobs.get(job_id)
        assert record is not None
        return record

    async def until(self, is_so: Callable[[], bool], limit_s: float) -> float:
        """Wait in virtual time; how long it took."""
        began = self.sim.loop.time()
        while not is_so():
            assert self.sim.loop.time() - began < limit_s, f"not within {limit_s} s"
            await pass_time(0.05)
        return self.sim.loop.time() - began

    async def until_status(self, job_id: str, status: JobStatus, limit_s: float) -> float:
        began = self.sim.loop.time()
        while (await self.job(job_id)).status is not status:
            assert self.sim.loop.time() - began < limit_s, f"not {status} within {limit_s} s"
            await pass_time(0.05)
        return self.sim.loop.time() - began

    def starts(self, job_id: str) -> list[tuple[str, float]]:
        return [
            (run.who, run.at / 1e6)
            for run in self.sim.history.of(HandlerRan)
            if run.id == job_id and not run.end
        ]

    def ends(self, job_id: str) -> list[tuple[str, str]]:
        return [
            (run.who, run.end)
            for run in self.sim.history.of(HandlerRan)
            if run.id == job_id and run.end
        ]


@contextmanager
def played(seed: int) -> Iterator[Callable[[Callable[[Scene], Awaitable[None]]], None]]:
    scene = Scene(seed)
    loop = scene.sim.loop

    def play(act: Callable[[Scene], Awaitable[None]]) -> None:
        async def whole() -> None:
            await scene.open_queues()
            await act(scene)
            for node in scene.nodes:
                if not node.gone and not node.frozen:
                    await node.shutdown(30)
            final = await read_final(scene.sim.store, loop.errors)
            assert check_history(scene.sim.history, final) == []

        loop.run_until_complete(whole())

    try:
        with logs_disabled():
            yield play
            loop.run_until_complete(remove_nodes(scene.sim, scene.nodes))
    finally:
        loop.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_workers_job_starts_again_within_lease_and_five_seconds(seed: int) -> None:
    async def act(scene: Scene) -> None:
        first = await scene.boot("a1")
        job = await scene.enqueue(work_s=20)
        await scene.until(lambda: len(scene.starts(job)) == 1, 2)
        second = await scene.boot("b1")
        await pass_time(3)
        first.crash()
        took_s = await scene.until(lambda: len(scene.starts(job)) == 2, LEASE_S + 5)
        assert took_s > 5
        assert scene.starts(job)[1][0] == second.who
        await scene.until_status(job, JobStatus.DONE, 25)
        record = await scene.job(job)
        assert (record.attempts, record.crashes) == (2, 1)

    with played(seed) as play:
        play(act)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_blocked_job_loop_is_not_reaped(seed: int) -> None:
    async def act(scene: Scene) -> None:
        first = await scene.boot("a1")
        job = await scene.enqueue(work_s=5)
        await scene.until(lambda: len(scene.starts(job)) == 1, 2)
        await scene.boot("b1")
        first.stall()
        await pass_time(3 * LEASE_S)
        assert (await scene.job(job)).status is JobStatus.RUNNING
        first.resume()
        await scene.until_status(job, JobStatus.DONE, 2)
        assert [who for who, _ in scene.starts(job)] == ["a1"]
        assert (await scene.job(job)).attempts == 1

    with played(seed) as play:
        play(act)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_late_finish_of_a_stopped_process_is_refused(seed: int) -> None:
    async def act(scene: Scene) -> None:
        first = await scene.boot("a1")
        job = await scene.enqueue(work_s=60)
        await scene.until(lambda: len(scene.starts(job)) == 1, 2)
        await scene.boot("b1")
        first.stop()
        await scene.until(lambda: len(scene.starts(job)) == 2, LEASE_S + 5)
        await pass_time(10)
        first.resume()
        # Told to stop as soon as it hears that it was declared dead.
        await scene.until(lambda: ("a1", "CancelledError") in scene.ends(job), 5)
        await scene.until_status(job, JobStatus.DONE, 65)
        applied = [
            finish for finish in scene.sim.history.of(Finished) if finish.verdict is Verdict.APPLIED
        ]
        assert [finish.who for finish in applied] == ["b1"]

    with played(seed) as play:
        play(act)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stopped_process_whose_handler_ends_on_resume(seed: int) -> None:
    async def act(scene: Scene) -> None:
        first = await scene.boot("a1")
        job = await scene.enqueue(work_s=25)
        await scene.until(lambda: len(scene.starts(job)) == 1, 2)
        await scene.boot("b1")
        first.stop()
        await scene.until(lambda: len(scene.starts(job)) == 2, LEASE_S + 5)
        # By now the first handler has slept long enough, and the second has not.
        await pass_time(15)
        first.resume()
        await pass_time(2)
        assert (await scene.job(job)).status is JobStatus.RUNNING
        await scene.until_status(job, JobStatus.DONE, 30)
        done = [move.who for move in scene.sim.history.of(Transitioned) if move.event is Event.DONE]
        assert done == ["b1"]

    with played(seed) as play:
        play(act)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_graceful_shutdown_spends_no_attempt(seed: int) -> None:
    async def act(scene: Scene) -> None:
        first = await scene.boot("a1")
        jobs = [await scene.enqueue(work_s=40) for _ in range(8)]
        await scene.until(lambda: all(scene.starts(job) for job in jobs), 5)
        began = scene.sim.loop.time()
        await first.shutdown(3)
        assert scene.sim.loop.time() - began < 3 + 2
        for job in jobs:
            record = await scene.job(job)
            assert (record.status, record.attempts) == (JobStatus.PENDING, 0)
        await scene.boot("b1")
        for job in jobs:
            await scene.until_status(job, JobStatus.DONE, 60)

    with played(seed) as play:
        play(act)


class SlowDeregister:
    """The processes of a store with a slow deregister call."""

    def __init__(self, inner: Any, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def deregister(self, owner: int) -> None:
        await pass_time(self._seconds)
        await self._inner.deregister(owner)


@pytest.mark.parametrize(("takes_s", "heard"), [(0.8, True), (60, False)])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_store_gets_the_deregistration(seed: int, takes_s: float, heard: bool) -> None:
    async def act(scene: Scene) -> None:
        first = await scene.boot("a1")
        assert first.handle is not None
        member = first.handle._process._registration
        member._processes = SlowDeregister(member._processes, takes_s)
        began = scene.sim.loop.time()
        await first.shutdown(3)
        assert scene.sim.loop.time() - began < 3 + 2
        assert (await scene.sim.store.processes.all() == []) is heard

    with played(seed) as play:
        play(act)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cancel_reaches_a_running_handler_within_a_second(seed: int) -> None:
    async def act(scene: Scene) -> None:
        await scene.boot("a1")
        job = await scene.enqueue(work_s=60)
        await scene.until(lambda: len(scene.starts(job)) == 1, 2)
        await pass_time(5)
        await scene.sim.store.jobs.act(
            BulkAction.CANCEL, Selection(ids=(job,)), reason="no longer wanted", limit=1
        )
        await scene.until(lambda: ("a1", "CancelledError") in scene.ends(job), 1)
        await scene.until_status(job, JobStatus.CANCELLED, 1)

    with played(seed) as play:
        play(act)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_outage_longer_than_the_lease_cancels_nothing(seed: int) -> None:
    async def act(scene: Scene) -> None:
        nodes = [await scene.boot("a1"), await scene.boot("b1")]
        jobs = [await scene.enqueue(work_s=50) for _ in range(6)]
        await scene.until(lambda: all(scene.starts(job) for job in jobs), 5)
        for node in nodes:
            scene.sim.fault(node.who, "cut")
            node.connection.cut = True
        await pass_time(LEASE_S + 3)
        for node in nodes:
            scene.sim.fault(node.who, "mend")
            node.connection.cut = False
        for job in jobs:
            await scene.until_status(job, JobStatus.DONE, 60)
            assert len(scene.starts(job)) == 1

    with played(seed) as play:
        play(act)


async def _hand_on(scene: Scene, kind: str, needs: Needs | None) -> float:
    """The slowest of 40 jobs that only one node of five takes, each enqueued to an idle cluster."""
    for who in ("old1", "old2", "old3", "old4"):
        await scene.boot(who, fresh=False)
    await scene.boot("new")
    payload = msgspec.json.encode(Plan(number=1, needs=needs))
    slowest = 0.0
    for _ in range(40):
        enqueued = await scene.sim.store.jobs.enqueue(
            [NewJob(kind=kind, queue="main", payload=payload)]
        )
        slowest = max(slowest, await scene.until_status(enqueued[0].id, JobStatus.DONE, 60))
    return slowest


@pytest.mark.parametrize("needs", [None, Needs.NAME, Needs.VALUE])
def test_r9_a_job_that_one_of_five_workers_takes_starts_within_seconds(needs: Needs | None) -> None:
    for seed in SEEDS:

        async def act(scene: Scene) -> None:
            kind = FRESH_KIND if needs is None else WORK_KIND
            assert await _hand_on(scene, kind, needs) < 4.0

        with played(seed) as play:
            play(act)


def test_r9_without_leaving_the_kind_to_others_the_scene_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def keep(self: LocalQueue, *args: object) -> None: ...

    monkeypatch.setattr(LocalQueue, "leave_to_others", keep)
    monkeypatch.setattr(Handover, "_wake_others", keep)
    took: list[float] = []
    for seed in SEEDS:

        async def act(scene: Scene) -> None:
            took.append(await _hand_on(scene, FRESH_KIND, None))

        with played(seed) as play:
            play(act)
    assert max(took) > 8.0
