"""Leadership only saves work: every check passes when every node runs every service."""

from forge_jobs.backends.memory.store import MemoryStore
from rigs.simulation.clocks import SimClock
from rigs.simulation.dice import Dice
from rigs.simulation.world import Options, simulate


def everybody_leads(clock: SimClock, dice: Dice) -> MemoryStore:
    store = MemoryStore(clock, dice)

    async def lead(name: str, key: int, *, ttl_s: float) -> bool:
        return True

    store.processes.lead = lead  # type: ignore[method-assign]
    return store


def test_simulations_with_all_nodes_leading_pass_every_check() -> None:
    options = Options(jobs=60, nodes=4, minutes=1.0, make_store=everybody_leads)
    for seed in range(3):
        ended = simulate(seed, options)
        assert [f"{one.rule}: {one.text}" for one in ended.violations] == [], f"seed {seed}"
        assert ended.seen["jobs stored"] >= 60
