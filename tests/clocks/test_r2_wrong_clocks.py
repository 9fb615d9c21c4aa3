"""R2: wrong clocks of workers and producers change nothing, through ``forge worker`` and ``Forge``.

On Postgres the server's clock decides. A worker and a producer whose clock is an hour off, and
steps while they run, work beside healthy ones here: no running job starts again, neither slots nor
a concurrency limit is exceeded, no tick of a schedule comes early or twice, delays last as long as
asked. On SQLite all processes share one machine and so one clock; it steps under all of them.
"""

import asyncio
from pathlib import Path

import pytest

from forge_jobs import Forge
from forge_jobs.core.instant import SECOND
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.store.store import Store
from tests.clocks.scene import SLOTS, Scene, produced_jobs
from tests.clocks.wrong_clock import WrongClock

pytestmark = [pytest.mark.processes, pytest.mark.slow]

LEASE_S = 6.0
DELAY_S = 3.0
HOUR_S = 3600
STAGES = {"ahead": HOUR_S, "behind": -HOUR_S}
# Jobs run longer than any stretch in which they would be taken away wrongly.
HELD_S = 16.0
STEPS, STEP_S = 10, 0.9


async def _wait_for_workers(store: Store, count: int) -> None:
    async with asyncio.timeout(60):
        while len(await store.processes.all()) < count:
            await asyncio.sleep(0.05)


async def test_r2_clocks_an_hour_off_and_stepping_among_healthy_processes_on_postgres(
    server_url: str, tmp_path: Path
) -> None:
    scene, wrong = Scene(server_url, tmp_path), WrongClock(tmp_path)
    forge = Forge(scene.url)
    store = await forge.aready()
    began = SYSTEM_CLOCK.now()
    try:
        with scene.worker("ours,shared,quick", LEASE_S, None):
            held = [f"ours-{number}" for number in range(4)]
            for name in held:
                await forge.aenqueue("hold", {"name": name, "seconds": HELD_S}, queue="ours")
            await scene.until(lambda: set(held) <= set(scene.started()), "the first jobs")
            wrong.set(HOUR_S)
            with scene.worker("theirs,shared,quick", LEASE_S, wrong):
                await _wait_for_workers(store, 2)
                theirs = [f"theirs-{number}" for number in range(4)]
                for name in theirs:
                    wanted = {"name": name, "seconds": HELD_S}
                    await forge.aenqueue("hold", wanted, queue="theirs")
                names = await _produce_with_steps(scene, wrong)
                await scene.ended([*held, *theirs, *names])
                await asyncio.sleep(1.0)
        _check_starts(scene, [*held, *theirs, *names])
        _check_delays(scene)
        await _check_ticks(store)
        await _check_records(store, began)
    finally:
        await forge.aclose()


async def _produce_with_steps(scene: Scene, wrong: WrongClock) -> list[str]:
    """Producers and worker an hour ahead, then an hour behind, and a last step forward."""
    names: list[str] = []
    for stage, ahead_s in STAGES.items():
        wrong.set(ahead_s)
        payload = f'{{"name": "{stage}-shell-later"}}'
        await asyncio.gather(
            scene.run("clock_app.py", stage, str(DELAY_S), clock=wrong),
            scene.run("-m", "forge_jobs", "enqueue", "quick", payload, "--delay", "30m",
                      clock=wrong),
        )  # fmt: skip
        names += produced_jobs(stage)
        # Longer than a lease in total: a reaper finds every process whose lease seems expired.
        await asyncio.sleep(LEASE_S / 2)
    wrong.set(HOUR_S)
    return names


def _check_starts(scene: Scene, names: list[str]) -> None:
    started = scene.started()
    started.pop("often")
    assert started == dict.fromkeys(names, 1)
    assert scene.max_concurrent("-shared-") <= SLOTS
    assert scene.max_concurrent("-alone-") == 1


def _check_delays(scene: Scene) -> None:
    for stage in STAGES:
        name = f"{stage}-soon"
        assert scene.at("start", name) >= scene.at("ask", name) + DELAY_S - 0.1
        assert scene.at("start", name) <= scene.at("asked", name) + DELAY_S + 10


async def _check_ticks(store: Store) -> None:
    assert await store.schedules.history("hourly", limit=10) == []
    fires = await store.schedules.history("often", limit=100)
    ticks = [fire.tick for fire in fires]
    assert len(ticks) >= 3
    assert len(ticks) == len(set(ticks))
    assert all(0 <= fire.at - fire.tick < 60 * SECOND for fire in fires)


async def _check_records(store: Store, began: int) -> None:
    ended = SYSTEM_CLOCK.now()
    found = (await store.jobs.page(Filter(), limit=200)).jobs
    later = [job for job in found if job.status is JobStatus.SCHEDULED]
    assert len(later) == 2 * len(STAGES)
    for job in later:
        assert abs(job.run_at - job.enqueued_at - 1800 * SECOND) < SECOND
    for job in found:
        assert began - 5 * SECOND <= job.enqueued_at <= ended + 5 * SECOND
        assert job.crashes == 0


async def test_r2_r4_a_clock_that_steps_under_all_processes_of_a_sqlite_file(
    tmp_path: Path,
) -> None:
    """The clock is set an hour forward and back, again and again, so that some steps fall between a
    heartbeat and the reaper's next tick."""
    scene, wrong = Scene(f"sqlite:///{tmp_path}/jobs.db", tmp_path), WrongClock(tmp_path)
    forge = Forge(scene.url)
    store = await forge.aready()
    try:
        queues = ("ours,shared,quick", "theirs,shared,quick")
        with scene.worker(queues[0], LEASE_S, wrong), scene.worker(queues[1], LEASE_S, wrong):
            await _wait_for_workers(store, 2)
            held = [f"{queue}-{number}" for queue in ("ours", "theirs") for number in range(4)]
            for name in held:
                wanted = {"name": name, "seconds": STEPS * STEP_S + 2}
                await forge.aenqueue("hold", wanted, queue=name.split("-")[0])
            await scene.until(lambda: set(held) <= set(scene.started()), "the first jobs")
            for number in range(STEPS):
                wrong.set(HOUR_S if number % 2 == 0 else 0)
                await asyncio.sleep(STEP_S)
            # Enqueued by a clock that is an hour ahead, due at once for one that is correct again.
            wrong.set(HOUR_S)
            await scene.run("clock_app.py", "ahead", "0", clock=wrong)
            wrong.set(0)
            names = [*held, *produced_jobs("ahead")]
            await scene.ended(names)
        started = scene.started()
        assert {name: started[name] for name in names} == dict.fromkeys(names, 1)
        assert scene.max_concurrent("-shared-") <= SLOTS
        assert scene.max_concurrent("-alone-") == 1
        await _check_no_tick_twice(store)
    finally:
        await forge.aclose()


async def _check_no_tick_twice(store: Store) -> None:
    for name in ("hourly", "often"):
        ticks = [fire.tick for fire in await store.schedules.history(name, limit=100)]
        assert len(ticks) == len(set(ticks))
