"""The judge of slots: on histories made by hand, and on worlds that share wrongly on purpose."""

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
from rigs.simulation.final import Final
from rigs.simulation.history import (
    Claimed,
    History,
    Moved,
    Ran,
    Record,
    Registered,
    Shared,
    Slotted,
)
from rigs.simulation.slot_checkers import within_slots
from rigs.simulation.world import Options, simulate

MAX_SEEDS = 20
SETTING: list[Record] = [
    Slotted(0, "world", "main", 2),
    Registered(0, "a", 1, 1_000),
    Registered(0, "b", 2, 1_000),
]


def _rules(*records: Record) -> set[str]:
    history = History()
    for record in [*SETTING, *records]:
        history.add(record)
    return {violation.rule for violation in within_slots(history, Final({}, {}))}


def _started(key: int, owner: int, at: int) -> list[Record]:
    who = "ab"[owner - 1]
    return [
        Moved(at, who, key, Event.CLAIM, JobStatus.PENDING, JobStatus.RUNNING, 1, 1, owner),
        Claimed(at, who, owner, key, 1, "main", 0, at, True),
        Ran(at, who, key, job_id(key, 0, 7)),
    ]


def test_shares_within_the_total_are_fine() -> None:
    shares = [Shared(1, "a", 1, "main", 1, 1), Shared(1, "a", 2, "main", 1, 1)]
    assert _rules(*shares, *_started(1, 1, 5), *_started(2, 2, 6)) == set()


def test_more_is_granted_than_there_is() -> None:
    assert _rules(Shared(1, "a", 1, "main", 2, 2), Shared(1, "a", 2, "main", 1, 1)) == {"granted"}


def test_less_than_is_held_may_be_granted_after_a_cut() -> None:
    shares = [Shared(1, "a", 1, "main", 2, 2), Slotted(2, "operator", "main", 1)]
    assert _rules(*shares, Shared(3, "a", 1, "main", 1, 2)) == set()


def test_more_handlers_run_than_slots_are_held() -> None:
    share = Shared(1, "a", 1, "main", 1, 1)
    assert _rules(share, *_started(1, 1, 5), *_started(2, 1, 6)) == {"slots"}
    ended = Ran(5, "a", 1, job_id(1, 0, 7), "returned")
    assert _rules(share, *_started(1, 1, 5), ended, *_started(2, 1, 6)) == set()
    lost = Moved(5, "b", 1, Event.REAP, JobStatus.RUNNING, JobStatus.PENDING, 2, 1, None, 1)
    assert _rules(share, *_started(1, 1, 5), lost, *_started(2, 1, 6)) == set()


def test_r13_a_process_runs_more_than_is_held_for_it_while_the_total_is_kept() -> None:
    shares = [Shared(1, "a", 1, "main", 2, 2), Shared(1, "a", 2, "main", 0, 0)]
    assert _rules(*shares, *_started(1, 1, 5)) == set()
    assert _rules(*shares, *_started(1, 2, 5)) == {"slots"}


def test_r13_what_runs_in_a_life_that_lost_its_claim_is_not_counted() -> None:
    share = Shared(1, "a", 1, "main", 1, 1)
    lost = Moved(5, "b", 1, Event.REAP, JobStatus.RUNNING, JobStatus.PENDING, 2, 1, None, 1)
    passed_on = [Shared(6, "b", 1, "main", 0, 0), Shared(6, "b", 2, "main", 1, 1)]
    assert _rules(share, *_started(1, 1, 4), lost, *passed_on, *_started(2, 2, 7)) == set()
    not_lost = [*_started(1, 1, 4), *passed_on, *_started(2, 2, 7)]
    assert _rules(share, *not_lost) == {"slots"}


@pytest.mark.parametrize("seed", ["383", "840", "1967"])
def test_r13_worlds_that_ran_more_handlers_than_slots_keep_every_promise(
    seed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the finding ran them: the default options of the command."""
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
def test_broken_sharing_is_noticed(
    sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    for seed in range(MAX_SEEDS):
        ended = simulate(seed, Options(jobs=100, minutes=1.5))
        if {violation.rule for violation in ended.violations} & {"slots", "granted"}:
            return
    raise AssertionError(f"nothing was noticed in {MAX_SEEDS} seeds")
