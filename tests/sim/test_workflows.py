"""Workflows in simulations: every check passes, and sabotaged steps and events are detected."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from forge_jobs.backends.memory.user_transactions import UserTransactions
from forge_jobs.backends.shared.rowwise import events, steps, waits
from forge_jobs.backends.shared.rowwise.rows import Row
from forge_jobs.backends.shared.rowwise.step_ports import StoredEvent
from forge_jobs.backends.shared.rowwise.step_tables import RowSteps
from forge_jobs.backends.shared.rowwise.transaction import Transaction
from forge_jobs.core.instant import Instant
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import StepRecord
from forge_jobs.engine.steps.run_steps import RunSteps
from rigs.simulation.world import Options, simulate
from tests.sim.test_simulation import assert_kept

OPTIONS = Options(jobs=5, workflows=60, minutes=1.5)
SEEDS = 6
MAX_SEEDS = 12


def test_simulations_of_workflows_pass_every_check() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        ended = simulate(seed, OPTIONS)
        assert_kept(ended)
        seen.update(ended.seen)
    had = ("steps stored", "events taken", "waits timed out", "restarts", "stale steps refused",
           "steps committed with their effects")  # fmt: skip
    assert [name for name in had if not seen[name]] == []


def test_a_simulation_of_workflows_is_deterministic() -> None:
    first, second = simulate(4, OPTIONS), simulate(4, OPTIONS)
    assert first.history.records == second.history.records


class _Everything(set[tuple[int, int]]):
    def __contains__(self, claim: object) -> bool:
        return True


def _steps_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    def any_claim(self: Transaction, owner: int, keys: Iterable[int]) -> set[tuple[int, int]]:
        return _Everything()

    patch.setattr(Transaction, "current_claims", any_claim)


def _the_last_write_wins(patch: pytest.MonkeyPatch) -> None:
    def nothing(
        self: RowSteps, wanted: Sequence[tuple[int, str]]
    ) -> dict[tuple[int, str], StepRecord]:
        return {}

    patch.setattr(RowSteps, "find", nothing)


def _an_event_resumes_nobody(patch: pytest.MonkeyPatch) -> None:
    def nobody(tx: Transaction, event: StoredEvent, limit: int) -> tuple[int, bool]:
        return 0, True

    patch.setattr(events, "_deliver", nobody)


def _a_suspending_run_checks_once(patch: pytest.MonkeyPatch) -> None:
    """An event that is sent between the check and the end of the run is missed."""
    real = waits.suspend

    def blind(tx: Transaction, row: Row, wait: Any) -> JobStatus:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(waits, "_decided", lambda *args: None)
            return real(tx, row, wait)

    patch.setattr(waits, "suspend", blind)


def _deadline_and_event_both_apply(patch: pytest.MonkeyPatch) -> None:
    """A deadline leaves the wait behind, and an event does not look whether its job is suspended
    still."""
    real_wake, real_resume, real_suspend = waits.wake, waits.resume, waits.suspend

    def wake(tx: Transaction, rows: Sequence[Row]) -> None:
        stored = tx.steps.waits_of([row.key for row in rows])
        real_wake(tx, rows)
        for wait in stored.values():
            if wait.wait.deadline is not None and wait.wait.deadline <= tx.now:
                tx.steps.add_wait(wait)

    def resume(tx: Transaction, jobs: Sequence[int]) -> int:
        stored = tx.steps.waits_of(jobs)
        rows = tx.load(jobs)
        for row in rows.values():
            event = waits._first_event(tx, stored[row.key].wait, None)
            if row.status is not JobStatus.SUSPENDED and event is not None:
                tx.steps.add([waits._event_step(tx, stored[row.key], event)])
                tx.steps.delete_wait(row.key)
        return real_resume(tx, [job for job in jobs if job in tx.tables.waits])

    def suspend(tx: Transaction, row: Row, wait: Any) -> JobStatus:
        tx.steps.delete_wait(row.key)
        return real_suspend(tx, row, wait)

    patch.setattr(waits, "wake", wake)
    patch.setattr(waits, "resume", resume)
    patch.setattr(waits, "suspend", suspend)


def _a_released_job_forgets_its_steps(patch: pytest.MonkeyPatch) -> None:
    def no_mark(tx: Transaction, rows: Sequence[Row]) -> None:
        pass

    patch.setattr(steps, "mark_found", no_mark)


def _a_restart_forgets_what_was_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RunSteps, "cursors", lambda self: ())


def _sleeps_end_by_the_clocks_of_nodes(patch: pytest.MonkeyPatch) -> None:
    """Of a clock that is behind a run would sleep again and again."""

    def now(self: RunSteps) -> Instant:
        return max(self.around.store_time.now(), self.around.clock.now())

    patch.setattr(RunSteps, "now", now)


def _a_step_does_not_wait_for_its_transaction(patch: pytest.MonkeyPatch) -> None:
    async def at_once(self: UserTransactions, transaction: object) -> None:
        return None

    patch.setattr(UserTransactions, "ajoin", at_once)


@pytest.mark.parametrize(
    ("sabotage", "rule"),
    [
        (_steps_are_not_fenced, "step fence"),
        (_the_last_write_wins, "rewritten"),
        (_an_event_resumes_nobody, "asleep"),
        (_a_suspending_run_checks_once, "asleep"),
        (_deadline_and_event_both_apply, "decided"),
        (_a_released_job_forgets_its_steps, "repeated"),
        (_a_restart_forgets_what_was_taken, "taken"),
        (_a_step_does_not_wait_for_its_transaction, "committed"),
        (_sleeps_end_by_the_clocks_of_nodes, "stuck"),
    ],
)
def test_sabotaged_steps_are_detected(
    sabotage: Callable[[pytest.MonkeyPatch], None], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    others: set[str] = set()
    for seed in range(MAX_SEEDS):
        broken = {violation.rule for violation in simulate(seed, OPTIONS).violations}
        if rule in broken:
            return
        others |= broken
    raise AssertionError(f"nothing was noticed in {MAX_SEEDS} seeds, only {others}")
