"""The checkers of steps on hand-written histories: a valid one, and one with a violation each."""

from collections.abc import Callable

import pytest

from forge_jobs.core.ids import job_id
from forge_jobs.core.job import JobRecord
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.steps import StepKind
from forge_jobs.store.jobs import Verdict
from rigs.simulation.history import (
    Claimed,
    EffectCommitted,
    EventStored,
    Finished,
    HandlerRan,
    Record,
    StepRan,
    StepsDeleted,
    StepSeen,
    StepStored,
    Transitioned,
    WaitDeleted,
    WaitStored,
)
from tests.sim.test_checkers import NODES, claimed, enqueued, finished, row, rules

J1 = job_id(1, 0, 7)
P, R = JobStatus.PENDING, JobStatus.RUNNING
U, F = JobStatus.SUSPENDED, JobStatus.FAILED


def stored(
    at: int, name: str, kind: StepKind = StepKind.STEP, *, epoch: int = 1, held: int = 1,
    status: JobStatus = R, value: str = "5", seq: int = 0,
) -> StepStored:  # fmt: skip
    topic = "go" if seq else ""
    return StepStored(at, "a", 1, name, kind, epoch, value, status, held, topic, seq)


def event_value(payload: int) -> str:
    return f'{{"name":"go","payload":{payload}}}'


def workflow() -> list[Record]:
    """A step, a wait that suspends the job, an event, and a second run to the end."""
    return [
        *NODES,
        *enqueued(),
        *claimed(at=10, owner=1, epoch=1, attempts=1),
        HandlerRan(20, "a", 1, J1),
        StepRan(21, "a", 1, J1, "s0", 5),
        stored(22, "s0"),
        StepSeen(23, "a", 1, J1, "s0", 5),
        HandlerRan(24, "a", 1, J1, "Suspended"),
        WaitStored(25, "a", 1, "s1", (("go", 0, 0),)),
        Transitioned(25, "a", 1, Event.SUSPEND, R, U, 1, 0, None, 1),
        Finished(25, "a", 1, 1, 1, U, Verdict.APPLIED, 0),
        EventStored(30, "operator", 1, "go", 30),
        WaitDeleted(30, "operator", 1),
        Transitioned(30, "operator", 1, Event.RESUME, U, P, 1, 0),
        stored(30, "s1", StepKind.EVENT, status=U, value=event_value(9), seq=1),
        *claimed(at=40, owner=1, epoch=2, attempts=1),
        HandlerRan(41, "a", 2, J1),
        StepSeen(42, "a", 2, J1, "s0", 5),
        StepSeen(42, "a", 2, J1, "s1", 9),
        HandlerRan(43, "a", 2, J1, "returned"),
        *finished(at=50, owner=1, epoch=2, attempts=1),
    ]


def rows() -> list[JobRecord]:
    return [row(epoch=2)]


def test_a_good_workflow_has_no_violation() -> None:
    assert rules(workflow(), rows()) == set()


def test_an_effect_is_committed_with_its_step() -> None:
    ran = StepRan(22, "a", 1, J1, "tx0", 7)
    committed = EffectCommitted(23, "a", 1, J1, "tx0", 7)
    seen = StepSeen(24, "a", 1, J1, "tx0", 7)
    step = stored(23, "tx0", value="7")
    good = [record for record in workflow() if record.at < 24]
    rest = [record for record in workflow() if record.at >= 24]

    def found(*more: Record) -> set[str]:
        return rules([*good, *more, *rest], rows())

    assert found(ran, step, committed, seen) == set()
    # Only the step, only the effect, at another instant, or another effect than the stored one.
    assert found(ran, step, seen) == {"committed"}
    assert "committed" in found(ran, committed, seen)
    assert found(ran, stored(22, "tx0", value="7"), committed, seen) == {"committed"}
    again = EffectCommitted(23, "a", 1, J1, "tx0", 8)
    assert found(ran, step, committed, again, seen) == {"committed"}


def insert(records: list[Record], at: int, *added: Record) -> list[Record]:
    return sorted([*records, *added], key=lambda record: record.at + (record in added) * 0.5)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda w: insert(w, 42, stored(42, "s0", epoch=2, held=2, value="6")), "rewritten"),
        (lambda w: insert(w, 42, stored(42, "s1", StepKind.TIMEOUT, epoch=2, held=2)), "decided"),
        (lambda w: insert(w, 42, stored(42, "s2", epoch=1, held=2)), "step fence"),
        (lambda w: insert(w, 30, stored(30, "s2", status=P)), "step fence"),
        (lambda w: insert(w, 42, StepSeen(42, "a", 2, J1, "s0", 7)), "given"),
        (lambda w: insert(w, 42, StepRan(42, "a", 2, J1, "s0", 7)), "repeated"),
        (
            lambda w: insert(
                w, 42, stored(42, "s2", StepKind.EVENT, epoch=2, held=2, value="", seq=1)
            ),
            "taken",
        ),
        (lambda w: [one for one in w if getattr(one, "run", 0) != 1 or one.at != 24], "parked"),
    ],
)  # fmt: skip
def test_a_violation_is_found(change: Callable[[list[Record]], list[Record]], rule: str) -> None:
    assert rule in rules(change(workflow()), rows())


def test_a_deleted_step_may_run_and_be_stored_again() -> None:
    again = insert(
        workflow(), 35, StepsDeleted(35, "operator", 1, ("s0", "s1"), by_retry=True),
        StepRan(42, "a", 2, J1, "s0", 8), stored(42, "s0", epoch=2, held=2, value="8"),
        stored(42, "s1", StepKind.EVENT, epoch=2, held=2, value=event_value(9), seq=1),
    )  # fmt: skip
    assert rules(again, rows()) == set()


def test_a_restart_gives_no_event_back() -> None:
    again = insert(
        workflow(), 35, StepsDeleted(35, "a", 1, ("s0", "s1"), by_retry=False),
        stored(42, "s1", StepKind.EVENT, epoch=2, held=2, value=event_value(9), seq=1),
    )  # fmt: skip
    assert "taken" in rules(again, rows())


def test_a_wait_that_an_event_does_not_end() -> None:
    late = 3_000_000
    records: list[Record] = [
        WaitStored(25, "a", 1, "s1", (("go", 3, 100),)),
        EventStored(30, "operator", 3, "go", 200),
        EventStored(31, "operator", 4, "go", 50),
        EventStored(32, "operator", 5, "other", 200),
        WaitDeleted(late, "b", 1),
    ]
    assert "asleep" not in rules(records)
    assert "asleep" in rules([*records[:4], EventStored(33, "x", 6, "go", 100), records[4]])
    assert "asleep" in rules(
        [
            EventStored(20, "x", 6, "go", 100),
            records[0],
            Claimed(late, "b", 1, 2, 1, "q", 0, 1, True),
        ]
    )


@pytest.mark.parametrize(
    ("steps", "max_attempts", "is_right"),
    [((stored(22, "s0"),), 3, True), ((), 3, False), ((stored(22, "s0"),), 1, False)],
)
def test_an_attempt_is_given_back_for_progress(
    steps: tuple[Record, ...], max_attempts: int, is_right: bool
) -> None:
    records = [
        *NODES,
        *enqueued(),
        *claimed(at=10, owner=1, epoch=1, attempts=1),
        *steps,
        Transitioned(30, "a", 1, Event.FAIL, R, F, 1, 0, None, 1),
    ]
    found = rules(records, [row(status=F, max_attempts=max_attempts, attempts=0)])
    assert ("progress" not in found) == is_right
