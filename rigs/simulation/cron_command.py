"""``--cron``: worlds in which nothing but cron runs."""

from collections import Counter
from collections.abc import Callable, Sequence

from forge_jobs.kit.clock import SYSTEM_CLOCK
from rigs.simulation.cron_checker import check_cron
from rigs.simulation.cron_world import CronOptions, simulate_cron

NODES = 5
_MAX_SHOWN = 20
# In every so manieth world all nodes believe to be the coordinator.
_EVERYBODY_IN = 4


def run_cron(
    seeds: Sequence[int],
    *,
    days: float,
    nodes: int,
    twice: bool,
    progress: Callable[[int, int, float], None],
) -> int:
    """Run the worlds and say what was seen; 1 when a promise was broken."""
    began, seen = SYSTEM_CLOCK.mono(), Counter[str]()
    for place, seed in enumerate(seeds, 1):
        everybody = seed % _EVERYBODY_IN == _EVERYBODY_IN - 1
        options = CronOptions(days=days, nodes=nodes, everybody=everybody)
        ended = simulate_cron(seed, options)
        broken = check_cron(ended)
        if broken:
            print(f"\nseed {seed} broke {len(broken)} promises:")
            print("\n".join(f"  {text}" for text in broken[:_MAX_SHOWN]))
            again = f"--cron --seed {seed} --days {days:g} --nodes {nodes}"
            print(f"\nreplay: python -m rigs.simulation {again}")
            return 1
        if twice and simulate_cron(seed, options).ticked != ended.ticked:
            print(f"seed {seed} did not repeat itself: its second run differs from the first")
            return 1
        seen.update(ended.faults)
        seen["ticks"] += len(ended.ticked)
        seen["races lost to another node"] += ended.lost_races
        progress(place, len(seeds), SYSTEM_CLOCK.mono() - began)
    took_s = SYSTEM_CLOCK.mono() - began
    print(
        f"{len(seeds)} seeds, {nodes} nodes, {days:g} virtual days each in {took_s:.1f} s: "
        "each tick fired exactly once."
    )
    for name, count in sorted(seen.items(), key=lambda item: (-item[1], item[0])):
        print(f"  {count:>10,}  {name}")
    return 0
