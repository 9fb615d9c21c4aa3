"""Each checker on hand-written histories: a valid one, and one with a violation."""

from collections.abc import Sequence

import msgspec
import pytest

from forge_jobs.core.ids import job_id
from forge_jobs.core.job import JobRecord, Successor
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.jobs import Verdict
from rigs.simulation.all_checkers import check_history
from rigs.simulation.excerpt import excerpt
from rigs.simulation.final import FinalState
from rigs.simulation.history import (
    NEWER,
    Acknowledged,
    Answered,
    Called,
    CallResult,
    Claimed,
    Deregistered,
    Fault,
    Finished,
    HandlerRan,
    HeartbeatReceived,
    History,
    Paused,
    Record,
    Registered,
    Stored,
    Transitioned,
)

S, P, R = JobStatus.SCHEDULED, JobStatus.PENDING, JobStatus.RUNNING
F, D, X, C = JobStatus.FAILED, JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED
LEASE = 1_000
J1 = job_id(1, 0, 7)


def row(key: int = 1, status: JobStatus = D, **changes: object) -> JobRecord:
    ended = status in (D, X, C)
    fields: dict[str, object] = {
        "id": job_id(key, 0, 7),
        "kind": "work",
        "queue": "main",
        "payload": b'{"number":1}',
        "priority": 0,
        "attempts": 1,
        "max_attempts": 3,
        "epoch": 1,
        "enqueued_at": 0,
        "run_at": 0,
        "finished_at": 50 if ended else None,
        **changes,
    }
    return JobRecord(key=key, status=status, **fields)  # pyright: ignore[reportArgumentType]


def enqueued(key: int = 1, at: int = 0) -> list[Record]:
    return [
        Transitioned(at, "producer", key, Event.ENQUEUE, None, P, 0, 0),
        Stored(at, "producer", key, job_id(key, 0, 7), False, 1),
        Acknowledged(at, "producer", 1, job_id(key, 0, 7), False),
    ]


def claimed(key: int = 1, *, at: int, owner: int, epoch: int, attempts: int) -> list[Record]:
    who = "ab"[owner - 1]
    return [
        Transitioned(at, who, key, Event.CLAIM, P, R, epoch, attempts, owner),
        Claimed(at, who, owner, key, epoch, "main", 0, at, True),
    ]


def finished(
    key: int = 1, *, at: int, owner: int, epoch: int, attempts: int, carried: int = 0
) -> list[Record]:
    who = "ab"[owner - 1]
    return [
        Transitioned(at, who, key, Event.DONE, R, D, epoch, attempts, None, owner),
        Finished(at, who, owner, key, epoch, D, Verdict.APPLIED, carried),
    ]


def reaped(key: int = 1, *, at: int, former: int, epoch: int, attempts: int) -> Record:
    return Transitioned(at, "b", key, Event.REAP, R, P, epoch, attempts, None, former)


NODES: list[Record] = [Registered(0, "a", 1, LEASE), Registered(0, "b", 2, LEASE)]


def good() -> list[Record]:
    return [
        *NODES,
        *enqueued(),
        *claimed(at=10, owner=1, epoch=1, attempts=1),
        HandlerRan(20, "a", 1, J1),
        HandlerRan(40, "a", 1, J1, "returned"),
        *finished(at=50, owner=1, epoch=1, attempts=1),
    ]


def rules(
    records: Sequence[Record],
    rows: Sequence[JobRecord] = (),
    *,
    counts: dict[tuple[str, JobStatus], int] | None = None,
    errors: tuple[str, ...] = (),
) -> set[str]:
    history = History()
    for record in records:
        history.add(record)
    kept = {one.key: one for one in (rows or [row()])}
    if counts is None:
        counts = {}
        for one in kept.values():
            counts[one.queue, one.status] = counts.get((one.queue, one.status), 0) + 1
    return {
        violation.rule for violation in check_history(history, FinalState(kept, counts, errors))
    }


def test_a_good_history_has_no_violation() -> None:
    assert rules(good()) == set()


def test_an_acknowledged_job_that_is_gone() -> None:
    assert "lost" in rules(good(), [row(2)])


def test_a_deleted_job_is_not_lost() -> None:
    deleted = Transitioned(60, "operator", 1, Event.DELETE, D, None, 1, 1)
    other = [*enqueued(2), Transitioned(5, "operator", 2, Event.CANCEL, P, C, 0, 0)]
    assert rules([*good(), deleted, *other], [row(2, C, attempts=0, epoch=0)]) == set()


def test_a_row_that_was_never_enqueued() -> None:
    assert "lost" in rules(good(), [row(), row(2)])


def test_a_row_with_the_payload_of_another_job() -> None:
    assert "lost" in rules(good(), [row(payload=b'{"number":7}')])


def test_two_applied_finishes_of_one_claim() -> None:
    again = Finished(60, "a", 1, 1, 1, D, Verdict.APPLIED, 0)
    assert "doubled" in rules([*good(), again])


def test_a_repeated_finish_that_was_recognised_is_fine() -> None:
    again = Finished(60, "a", 1, 1, 1, D, Verdict.ALREADY, 0)
    stale = Finished(61, "b", 2, 1, 1, D, Verdict.STALE, 0)
    assert rules([*good(), again, stale]) == set()


def lost_lease(finisher: int, epoch: int) -> list[Record]:
    """Process 1 loses the job to process 2; then ``finisher`` finishes it under ``epoch``."""
    return [
        *NODES,
        HeartbeatReceived(900, "b", 2, True),
        Fault(1, "a", "stop"),
        *enqueued(),
        *claimed(at=10, owner=1, epoch=1, attempts=1),
        HandlerRan(20, "a", 1, J1),
        reaped(at=1_500, former=1, epoch=2, attempts=1),
        *claimed(at=1_600, owner=2, epoch=3, attempts=2),
        HandlerRan(1_610, "b", 2, J1),
        HandlerRan(1_620, "b", 2, J1, "returned"),
        HandlerRan(1_630, "a", 1, J1, "returned"),
        *finished(at=1_700, owner=finisher, epoch=epoch, attempts=2),
    ]


def without_reap(instead: Record) -> list[Record]:
    """The same, but the owner changes in another way."""

    def is_reap(record: Record) -> bool:
        return isinstance(record, Transitioned) and record.event is Event.REAP

    return [instead if is_reap(record) else record for record in lost_lease(2, 3)]


def test_a_finish_by_the_new_owner_is_applied() -> None:
    assert rules(lost_lease(2, 3), [row(epoch=3, attempts=2)]) == set()


@pytest.mark.parametrize(("finisher", "epoch"), [(1, 1), (1, 3), (2, 1)])
def test_a_finish_that_was_not_fenced(finisher: int, epoch: int) -> None:
    assert "fence" in rules(lost_lease(finisher, epoch), [row(epoch=3, attempts=2)])


def test_a_transition_that_is_not_in_the_table() -> None:
    revived = Transitioned(60, "a", 1, Event.PROMOTE, D, P, 1, 1)
    assert "illegal" in rules([*good(), revived], [row(status=P)])


def test_a_transition_from_another_state() -> None:
    records = [*enqueued(), Transitioned(5, "a", 1, Event.PROMOTE, S, P, 0, 0)]
    assert "illegal" in rules(records, [row(status=P, attempts=0)])


def test_a_release_that_spends_an_attempt() -> None:
    records = [
        *NODES,
        *enqueued(),
        *claimed(at=10, owner=1, epoch=1, attempts=1),
        Transitioned(20, "a", 1, Event.RELEASE, R, P, 2, 1, None, 1),
        Transitioned(30, "operator", 1, Event.CANCEL, P, C, 2, 1),
    ]
    assert rules(records, [row(status=C, epoch=2)]) == {"attempts"}


def test_more_attempts_than_allowed() -> None:
    assert "attempts" in rules(good(), [row(attempts=4)])


def test_an_epoch_that_falls_or_stands_still() -> None:
    fallen = [*good()[:-2], *finished(at=50, owner=1, epoch=0, attempts=1)]
    assert "epoch" in rules(fallen)
    still = without_reap(reaped(at=1_500, former=1, epoch=1, attempts=1))
    assert "epoch" in rules(still, [row(epoch=3, attempts=2)])


def test_an_owner_without_running_and_an_end_without_a_time() -> None:
    assert "owner" in rules(good(), [row(owner=1)])
    assert "ended" in rules(good(), [row(finished_at=None)])
    assert "owner" in rules([*good(), Transitioned(60, "x", 1, Event.RETRY, D, P, 1, 0, 5)])


def test_a_job_that_never_ends() -> None:
    assert "stuck" in rules(good()[:3] + good()[3:5], [row(status=P, attempts=0)])


def test_counters_that_differ_from_the_rows() -> None:
    assert "counters" in rules(good(), counts={("main", D): 2})
    assert "counters" in rules(good(), counts={("main", D): 1, ("main", P): 1})
    assert "counters" in rules(good(), counts={})


def test_successors_are_stored_once_per_applied_finish() -> None:
    parent = [*good()[:-2], *finished(at=50, owner=1, epoch=1, attempts=1, carried=1)]
    body = msgspec.json.encode({"number": 2, "parent": J1})
    child = row(2, C, attempts=0, epoch=0, payload=body)
    stored: list[Record] = [
        Transitioned(50, "a", 2, Event.ENQUEUE, None, P, 0, 0),
        Transitioned(60, "operator", 2, Event.CANCEL, P, C, 0, 0),
    ]
    assert rules([*parent, *stored], [row(), child]) == set()
    assert "carried" in rules(parent)
    assert "carried" in rules([*good(), *stored], [row(), child])


def test_one_dead_letter_per_dead_job() -> None:
    died: list[Record] = [
        *good()[:-2],
        Transitioned(50, "a", 1, Event.DIE, R, X, 1, 1, None, 1),
        Finished(50, "a", 1, 1, 1, X, Verdict.APPLIED, 0),
    ]
    dead = row(status=X, on_dead=Successor("letter", "main"))
    told = {
        "id": J1, "kind": "work", "queue": "main", "attempts": 1, "error": None,
        "payload": {}, "enqueued_at": 0, "died_at": 50,
    }  # fmt: skip
    letter = row(
        2, C, kind="letter", attempts=0, epoch=0, payload=msgspec.json.encode({"job": told})
    )
    stored: list[Record] = [
        Transitioned(50, "a", 2, Event.ENQUEUE, None, P, 0, 0),
        Transitioned(60, "operator", 2, Event.CANCEL, P, C, 0, 0),
    ]
    assert rules([*died, *stored], [dead, letter]) == set()
    assert "carried" in rules(died, [dead])
    assert "carried" in rules([*died, *stored], [row(status=X), letter])


def test_two_live_jobs_with_one_key() -> None:
    one, two = row(1, C, dedupe_key="k", attempts=0), row(2, C, dedupe_key="k", attempts=0)
    first: list[Record] = [*enqueued(1), Transitioned(5, "o", 1, Event.CANCEL, P, C, 0, 0)]
    second: list[Record] = [*enqueued(2, 9), Transitioned(15, "o", 2, Event.CANCEL, P, C, 0, 0)]
    assert rules([*first, *second], [one, two]) == set()
    assert "dedupe" in rules([*first[:3], *second, first[3]], [one, two])


def test_a_job_reaped_from_a_live_process() -> None:
    records = lost_lease(2, 3)
    kept = [row(epoch=3, attempts=2)]
    assert "reap" in rules([records[0], HeartbeatReceived(900, "a", 1, True), *records[1:]], kept)
    left = [
        *records[:2],
        HeartbeatReceived(900, "a", 1, True),
        Deregistered(1_400, "a", 1),
        *records[2:],
    ]
    assert rules(left, kept) == set()
    replaced = [
        *records[:2],
        HeartbeatReceived(900, "a", 1, True),
        Registered(1_400, "c", 3, LEASE, (1,)),
    ]
    assert rules([*replaced, *records[2:]], kept) == set()


def test_a_process_reaped_although_its_heartbeats_arrive() -> None:
    kept = [row(epoch=3, attempts=2)]
    records = lost_lease(2, 3)
    stop = Fault(1, "a", "stop")

    def instead(*others: Record) -> list[Record]:
        place = records.index(stop)
        return [*records[:place], *others, *records[place + 1 :]]

    assert rules(instead(Fault(1, "a", "stall")), kept) == {"innocent"}
    assert rules(instead(stop, Fault(1_200, "a", "resume")), kept) == set()
    assert rules(instead(Fault(1, "a", "cut")), kept) == set()
    heartbeat = "processes.heartbeat"
    failed = [Called(800, "a", 1, heartbeat), Answered(810, "a", 1, heartbeat, CallResult.UNKNOWN)]
    assert rules(instead(*failed), kept) == set()
    slow = [Called(100, "a", 1, heartbeat), Answered(900, "a", 1, heartbeat, CallResult.OK)]
    assert rules(instead(*slow), kept) == set()
    quick = [Called(800, "a", 1, heartbeat), Answered(810, "a", 1, heartbeat, CallResult.OK)]
    assert rules(instead(*quick), kept) == {"innocent"}


def test_a_tight_loop_of_calls() -> None:
    calls: list[Record] = [Called(number, "a", number, "jobs.reap") for number in range(100)]
    assert rules([*calls[:50], *good()]) == set()
    assert rules([*calls, *good()]) == {"spin"}


def test_claims_from_a_paused_queue_too_early_or_too_late() -> None:
    assert "paused" in rules([Paused(1, "operator", "main", True), *good()])
    opened = [Paused(1, "operator", "main", True), Paused(2, "operator", "main", False)]
    assert rules([*opened, *good()]) == set()
    early = [*good()[:6], Claimed(10, "a", 1, 1, 1, "main", 11, 10, True), *good()[7:]]
    assert rules(early) == {"early"}
    assert rules(good(), [row(expires_at=9)]) == {"expired"}


def test_two_runs_at_once_need_a_loss_of_the_lease() -> None:
    kept = [row(epoch=3, attempts=2)]
    records = lost_lease(2, 3)
    assert rules(records, kept) == set()
    released = without_reap(Transitioned(1_500, "a", 1, Event.RELEASE, R, P, 2, 0, None, 1))
    assert "overlap" in rules(released, kept)


def test_a_crash_ends_the_runs_of_its_node() -> None:
    records = [
        record for record in lost_lease(2, 3) if record != HandlerRan(1_630, "a", 1, J1, "returned")
    ]
    kept = [row(epoch=3, attempts=2)]
    assert rules(records, kept) == {"unended"}
    assert rules([*records[:10], Fault(30, "a", "crash"), *records[10:]], kept) == set()


def test_a_start_of_a_job_of_another_process() -> None:
    cancelled: list[Record] = [
        *NODES,
        *enqueued(),
        Transitioned(5, "operator", 1, Event.CANCEL, P, C, 0, 0),
        HandlerRan(10, "a", 1, J1),
        HandlerRan(11, "a", 1, J1, "returned"),
    ]
    kept = [row(status=C, attempts=0, epoch=0)]
    assert rules(cancelled, kept) == {"start"}
    # A process stopped between its last look at the lease and the first step cannot know.
    assert rules([*cancelled[:6], Fault(9, "a", "resume"), *cancelled[6:]], kept) == set()
    stolen = [record for record in good() if not isinstance(record, HandlerRan)]
    assert "start" in rules(
        [*stolen[:7], HandlerRan(20, "b", 1, J1), HandlerRan(21, "b", 1, J1, "x"), *stolen[7:]]
    )


def _refused_and_dead(needs: str, *between: Record) -> set[str]:
    records: list[Record] = [
        Fault(0, "b", NEWER),
        *NODES,
        *enqueued(),
        *between,
        *claimed(at=900, owner=1, epoch=1, attempts=1),
        Transitioned(950, "a", 1, Event.DIE, R, X, 1, 1, None, 1),
        Finished(950, "a", 1, 1, 1, X, Verdict.APPLIED, 0),
    ]
    payload = msgspec.json.encode({"number": 1, "needs": needs})
    return rules(records, [row(status=X, payload=payload)])


def test_u4_a_refused_job_that_is_dead() -> None:
    assert _refused_and_dead("name") == {"refused"}
    assert _refused_and_dead("value") == {"refused"}
    # Nobody else was alive; or only from its claim on.
    assert _refused_and_dead("value", Deregistered(800, "b", 2)) == set()
    assert _refused_and_dead("name", Deregistered(800, "b", 2)) == {"refused"}
    late = (Deregistered(800, "b", 2), Registered(920, "b", 3, LEASE))
    assert _refused_and_dead("value", *late) == set()


def test_an_uncaught_error() -> None:
    assert rules(good(), errors=("ZeroDivisionError",)) == {"trouble"}


def test_the_excerpt_of_a_violation_has_its_job_and_the_injected_errors() -> None:
    history = History()
    for record in [*good()[:-2], Fault(45, "a", "crash"), *good()[-2:], *enqueued(2)]:
        history.add(record)
    violations = check_history(history, FinalState({1: row(finished_at=None)}, {}))
    told = excerpt(history, next(one for one in violations if one.key == 1))
    assert any("crash" in line for line in told)
    assert any("key=1" in line for line in told)
    assert not any("key=2" in line for line in told)
