"""Limits and lanes in simulations: every check passes, and sabotaged code is detected."""

from collections import Counter
from collections.abc import Callable

import pytest

from forge_jobs.backends.shared.rowwise import limit_buckets, limited_claim
from forge_jobs.backends.shared.rowwise.index import JobIndex
from forge_jobs.backends.shared.rowwise.transaction import Transaction
from forge_jobs.core.instant import Instant
from forge_jobs.core.limits import Limit
from rigs.simulation.world import Options, simulate
from tests.sim.test_simulation import assert_kept

OPTIONS = Options(jobs=10, bound=60, minutes=1.0)
SEEDS = 6
MAX_SEEDS = 20


def test_simulations_with_limits_and_lanes_pass_every_check() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        ended = simulate(seed, OPTIONS)
        assert_kept(ended)
        seen.update(ended.seen)
    bit = ("jobs held", "limits changed", "jobs reaped", "crashes")
    assert [name for name in bit if not seen[name]] == []


def test_a_simulation_with_limits_is_deterministic() -> None:
    first, second = simulate(2, OPTIONS), simulate(2, OPTIONS)
    assert first.history.records == second.history.records


def _a_key_counts_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JobIndex, "slots_in_use", lambda self, limit_key: 0)


def _a_cap_counts_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(limited_claim, "running_under", lambda tables, limit: 0)


def _a_start_costs_nothing(patch: pytest.MonkeyPatch) -> None:
    def free(limit: Limit, starts: int, now: Instant) -> Limit:
        return limit

    patch.setattr(limited_claim, "spent", free)


def _an_end_lets_nobody_on(patch: pytest.MonkeyPatch) -> None:
    def forgetful(tx: Transaction) -> None:
        tx.touched_buckets.clear()

    patch.setattr(limit_buckets, "admit_touched", forgetful)


def _a_death_leaks_its_room(patch: pytest.MonkeyPatch) -> None:
    """Count starts and finishes only, like a naive counter: a reap frees no slot."""
    real = Transaction.slots_in_use
    worst: dict[str, int] = {}

    def counted(self: Transaction, limit_key: str, max_slots: int) -> int:
        active = self.load(self.tables.index.active(limit_key)).values()
        lost = sum(row.details().crashes for row in active)
        worst[limit_key] = max(worst.get(limit_key, 0), lost)
        return real(self, limit_key, max_slots) + worst[limit_key]

    patch.setattr(Transaction, "slots_in_use", counted)


def _a_lane_runs_two(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JobIndex, "lane_slot_holder", lambda self, lane: None)


def _strict_is_serial(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transaction, "older_in_lane", lambda self, lane, key, strict: False)
    patch.setattr(Transaction, "lane_scheduled", lambda self, lane: (False, False))


@pytest.mark.parametrize(
    ("sabotage", "rules"),
    [
        (_a_key_counts_nobody, {"limit"}),
        (_a_cap_counts_nobody, {"limit"}),
        (_a_start_costs_nothing, {"rate"}),
        (_an_end_lets_nobody_on, {"leak", "starved"}),
        (_a_death_leaks_its_room, {"leak", "starved"}),
        (_a_lane_runs_two, {"lane", "limit"}),
        (_strict_is_serial, {"order"}),
    ],
)
def test_sabotaged_limits_are_detected(
    sabotage: Callable[[pytest.MonkeyPatch], None],
    rules: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sabotage(monkeypatch)
    others: set[str] = set()
    for seed in range(MAX_SEEDS):
        broken = {violation.rule for violation in simulate(seed, OPTIONS).violations}
        if broken & rules:
            return
        others |= broken
    raise AssertionError(f"nothing was noticed in {MAX_SEEDS} seeds, only {others}")
