"""The checker of slots: on hand-written histories, and on simulations with sabotaged shares."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from forge_jobs.backends.shared.rowwise import processes
from forge_jobs.core.ids import job_id
from forge_jobs.core.shares import Part, split
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.engine.services.slot_sync import SlotSync
from forge_jobs.store.processes import ProcessRecord, SlotsInUse
from rigs.simulation import __main__ as command
from rigs.simulation.final import FinalState
from rigs.simulation.history import (
    Claimed,
    HandlerRan,
    History,
    Record,
    Registered,
    ShareChanged,
    SlotsChanged,
    Transitioned,
)
from rigs.simulation.slot_checkers import within_slots
from rigs.simulation.world import Options, simulate

MAX_SEEDS = 20
SETTING: list[Record] = [
    SlotsChanged(0, "world", "main", 2),
    Registered(0, "a", 1, 1_000),
    Registered(0, "b", 2, 1_000),
]


def _rules(*records: Record) -> set[str]:
    history = History()
    for record in [*SETTING, *records]:
        history.add(record)
    return {violation.rule for violation in within_slots(history, FinalState({}, {}))}


def _started(key: int, owner: int, at: int) -> list[Record]:
    who = "ab"[owner - 1]
    return [
        Transitioned(at, who, key, Event.CLAIM, JobStatus.PENDING, JobStatus.RUNNING, 1, 1, owner),
        Claimed(at, who, owner, key, 1, "main", 0, at, True),
        HandlerRan(at, who, key, job_id(key, 0, 7)),
    ]


def test_shares_within_the_total_are_fine() -> None:
    shares = [ShareChanged(1, "a", 1, "main", 1, 1), ShareChanged(1, "a", 2, "main", 1, 1)]
    assert _rules(*shares, *_started(1, 1, 5), *_started(2, 2, 6)) == set()


def test_more_slots_granted_than_the_queue_has() -> None:
    assert _rules(ShareChanged(1, "a", 1, "main", 2, 2), ShareChanged(1, "a", 2, "main", 1, 1)) == {
        "granted"
    }


def test_held_slots_may_shrink_after_a_reduction() -> None:
    shares = [ShareChanged(1, "a", 1, "main", 2, 2), SlotsChanged(2, "operator", "main", 1)]
    assert _rules(*shares, ShareChanged(3, "a", 1, "main", 1, 2)) == set()


def test_more_handlers_run_than_slots_are_held() -> None:
    share = ShareChanged(1, "a", 1, "main", 1, 1)
    assert _rules(share, *_started(1, 1, 5), *_started(2, 1, 6)) == {"slots"}
    ended = HandlerRan(5, "a", 1, job_id(1, 0, 7), "returned")
    assert _rules(share, *_started(1, 1, 5), ended, *_started(2, 1, 6)) == set()
    lost = Transitioned(5, "b", 1, Event.REAP, JobStatus.RUNNING, JobStatus.PENDING, 2, 1, None, 1)
    assert _rules(share, *_started(1, 1, 5), lost, *_started(2, 1, 6)) == set()


def test_r13_a_process_runs_more_than_is_held_for_it_while_the_total_is_kept() -> None:
    shares = [ShareChanged(1, "a", 1, "main", 2, 2), ShareChanged(1, "a", 2, "main", 0, 0)]
    assert _rules(*shares, *_started(1, 1, 5)) == set()
    assert _rules(*shares, *_started(1, 2, 5)) == {"slots"}


def test_r13_runs_of_a_lost_claim_are_not_counted() -> None:
    share = ShareChanged(1, "a", 1, "main", 1, 1)
    lost = Transitioned(5, "b", 1, Event.REAP, JobStatus.RUNNING, JobStatus.PENDING, 2, 1, None, 1)
    passed_on = [ShareChanged(6, "b", 1, "main", 0, 0), ShareChanged(6, "b", 2, "main", 1, 1)]
    assert _rules(share, *_started(1, 1, 4), lost, *passed_on, *_started(2, 2, 7)) == set()
    not_lost = [*_started(1, 1, 4), *passed_on, *_started(2, 2, 7)]
    assert _rules(share, *not_lost) == {"slots"}


@pytest.mark.parametrize("seed", ["383", "840", "1967"])
def test_r13_seeds_that_once_exceeded_slots_pass_every_check(
    seed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the default options of the command, as they were found."""
    assert command.main(["--seed", seed]) == 0, capsys.readouterr().out


def _greedy(total: int, parts: Sequence[Part], *, max_slots: int) -> list[Part]:
    fair = split(total, [part.host_id for part in parts if part.wants])
    shared = [(part, fair[part.host_id] if part.wants else 0) for part in parts]
    return [replace(part, slots=n, held=n) for part, n in shared if n != part.slots]


def _newcomers_take_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(processes, "share_out", _greedy)


def _running_jobs_are_given_up(patch: pytest.MonkeyPatch) -> None:
    def all_free(self: SlotSync, record: ProcessRecord) -> list[SlotsInUse]:
        return [
            SlotsInUse(name, share.version, 0)
            for name, share in record.shares.items()
            if share.held > share.slots
        ]

    patch.setattr(SlotSync, "_slots_to_give_up", all_free)


@pytest.mark.parametrize(
    "sabotage",
    [
        _newcomers_take_at_once,
        _running_jobs_are_given_up,
    ],
)
def test_sabotaged_slot_shares_are_detected(
    sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    for seed in range(MAX_SEEDS):
        ended = simulate(seed, Options(jobs=100, minutes=1.5))
        if {violation.rule for violation in ended.violations} & {"slots", "granted"}:
            return
    raise AssertionError(f"nothing was noticed in {MAX_SEEDS} seeds")
