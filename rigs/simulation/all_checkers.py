"""Runs all checkers on a history."""

from typing import Final as Constant

from rigs.simulation import (
    bound_checkers,
    checkers,
    process_checkers,
    run_checkers,
    slot_checkers,
    step_checkers,
    version_checkers,
)
from rigs.simulation.checkers import Checker, Violation
from rigs.simulation.final import FinalState
from rigs.simulation.history import History

CHECKERS: Constant[tuple[Checker, ...]] = (
    checkers.no_loop_errors,
    checkers.lost,
    checkers.doubled_finishes,
    checkers.fenced,
    checkers.legal_transitions,
    checkers.epochs,
    checkers.rows_consistent,
    checkers.stuck,
    checkers.counters,
    checkers.successors_stored,
    checkers.deduplicated,
    checkers.only_dead_processes_reaped,
    process_checkers.live_processes_not_reaped,
    process_checkers.no_tight_loops,
    checkers.claims_allowed,
    run_checkers.overlapping_runs,
    run_checkers.starts_allowed,
    run_checkers.every_run_finished,
    slot_checkers.within_slots,
    version_checkers.refused_jobs_wait,
    bound_checkers.within_limits,
    bound_checkers.within_rate,
    bound_checkers.no_job_held_at_the_end,
    step_checkers.stored_steps_stay,
    step_checkers.effects_not_repeated,
    step_checkers.transactions_whole,
    step_checkers.events_taken_in_order,
    step_checkers.waits_end,
    step_checkers.parked_jobs_hold_nothing,
    step_checkers.attempts_returned_for_progress,
)


def check_history(history: History, final: FinalState) -> list[Violation]:
    """All violations, in the order of the checkers."""
    return [violation for checker in CHECKERS for violation in checker(history, final)]
