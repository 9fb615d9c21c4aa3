"""The size of a simulation, drawn by its seed.

Many small simulations meet more different situations in the same time than few large ones, and some
faults only show where little else happens: two nodes and five jobs starve in ways that three nodes
and 150 jobs do not.
"""

from dataclasses import replace

from rigs.simulation.dice import Dice
from rigs.simulation.world import Options

_MIN_JOBS = 5
_MIN_WORKFLOWS = 2
_MIN_NODES = 2
_MIN_BOUND = 10
_MIN_MINUTES = 0.3
_BOUND_SHARE = 0.4


def draw_size(seed: int, largest: Options) -> Options:
    """The options of a seed: no number greater than in ``largest``, small ones as likely as large
    ones. Without ``bound`` jobs in ``largest``, two seeds of five still have as many as jobs."""
    dice = Dice(f"{seed}:size")
    jobs = _draw(dice, _MIN_JOBS, largest.jobs)
    has_bound = dice.chance(_BOUND_SHARE)
    bound = _draw(dice, _MIN_BOUND, largest.bound or largest.jobs)
    fewest = min(_MIN_NODES, largest.nodes)
    return replace(
        largest,
        jobs=jobs,
        workflows=_draw(dice, _MIN_WORKFLOWS, largest.workflows),
        bound=bound if has_bound else 0,
        nodes=fewest + dice.index(largest.nodes - fewest + 1),
        minutes=round(_log_uniform(dice, _MIN_MINUTES, largest.minutes), 2),
    )


def _draw(dice: Dice, low: int, high: int) -> int:
    return round(_log_uniform(dice, low, high))


def _log_uniform(dice: Dice, low: float, high: float) -> float:
    if high <= low:
        return high
    return low * (high / low) ** dice.roll()
