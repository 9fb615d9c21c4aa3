"""All judges together."""

from typing import Final as Constant

from rigs.simulation import bound_checkers, checkers, life_checkers, run_checkers, slot_checkers
from rigs.simulation.checkers import Checker, Violation
from rigs.simulation.final import Final
from rigs.simulation.history import History

CHECKERS: Constant[tuple[Checker, ...]] = (
    checkers.untroubled,
    checkers.lost,
    checkers.doubled_finishes,
    checkers.fenced,
    checkers.legal_transitions,
    checkers.epochs,
    checkers.rows_agree,
    checkers.stuck,
    checkers.counters,
    checkers.carried,
    checkers.deduplicated,
    checkers.reaped_the_dead,
    life_checkers.kept_alive,
    life_checkers.unhurried,
    checkers.claimed_rightly,
    run_checkers.overlapping_runs,
    run_checkers.started_rightly,
    run_checkers.every_run_ended,
    slot_checkers.within_slots,
    bound_checkers.within_limits,
    bound_checkers.within_rate,
    bound_checkers.none_is_left,
)


def check_history(history: History, final: Final) -> list[Violation]:
    """Everything that must not have happened, in the order of the judges."""
    return [violation for checker in CHECKERS for violation in checker(history, final)]
