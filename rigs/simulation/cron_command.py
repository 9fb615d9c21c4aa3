"""``--cron``: simulations in which only cron runs."""

from collections import Counter
from collections.abc import Callable, Sequence

from forge_jobs.kit.clock import SYSTEM_CLOCK
from rigs.simulation.cron_checker import check_cron
from rigs.simulation.cron_world import CronOptions, simulate_cron

NODES = 5
_MAX_SHOWN = 20
# In every fourth simulation all nodes act as leader.
_ALL_LEAD_EVERY = 4


def run_cron(
    seeds: Sequence[int],
    *,
    days: float,
    nodes: int,
    twice: bool,
    progress: Callable[[int, int, float], None],
) -> int:
    """Run the simulations and print a summary; 1 if a check failed."""
    began, seen = SYSTEM_CLOCK.mono(), Counter[str]()
    for number, seed in enumerate(seeds, 1):
        all_lead = seed % _ALL_LEAD_EVERY == _ALL_LEAD_EVERY - 1
        options = CronOptions(days=days, nodes=nodes, all_lead=all_lead)
        ended = simulate_cron(seed, options)
        broken = check_cron(ended)
        if broken:
            print(f"\nseed {seed} broke {len(broken)} invariants:")
            print("\n".join(f"  {text}" for text in broken[:_MAX_SHOWN]))
            again = f"--cron --seed {seed} --days {days:g} --nodes {nodes}"
            print(f"\nreplay: python -m rigs.simulation {again}")
            return 1
        if twice and simulate_cron(seed, options).fired != ended.fired:
            print(f"seed {seed} is not deterministic: its second run differs from the first")
            return 1
        seen.update(ended.faults)
        seen["ticks"] += len(ended.fired)
        seen["races lost to another node"] += ended.lost_races
        progress(number, len(seeds), SYSTEM_CLOCK.mono() - began)
    took_s = SYSTEM_CLOCK.mono() - began
    print(
        f"{len(seeds)} seeds, {nodes} nodes, {days:g} virtual days each in {took_s:.1f} s: "
        "each tick fired exactly once."
    )
    for name, count in sorted(seen.items(), key=lambda item: (-item[1], item[0])):
        print(f"  {count:>10,}  {name}")
    return 0
