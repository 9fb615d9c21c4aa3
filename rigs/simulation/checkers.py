"""The checkers of jobs: each reads the history and the final store and yields violations.

No checker uses the engine or the backend. The text of a violation names the job and the instant, so
that the trace can be searched for them.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeAlias

from msgspec import Struct

from forge_jobs.core.job import UniqueWhile
from forge_jobs.core.status import LIVE, TERMINAL, TRANSITIONS, Attempts, Event, JobStatus, Rule
from forge_jobs.store.jobs import Verdict
from rigs.simulation.final import FinalState, payload_view
from rigs.simulation.history import (
    Acknowledged,
    Claimed,
    Deregistered,
    Finished,
    HeartbeatReceived,
    History,
    Paused,
    Registered,
    Transitioned,
    key_of,
)

OPERATOR = "operator"


class Violation(Struct, frozen=True):
    """A broken invariant: which rule, which row, and what happened."""

    rule: str
    key: int | None
    text: str


_FINISHES = (
    Event.DONE, Event.FAIL, Event.DIE, Event.CRASH, Event.THROTTLE, Event.SNOOZE, Event.MISSING,
    Event.SUSPEND, Event.RESTART,
)  # fmt: skip

_RULES: dict[tuple[JobStatus | None, Event, JobStatus | None], list[Rule]] = {}
for _rule in TRANSITIONS:
    _RULES.setdefault((_rule.source, _rule.event, _rule.target), []).append(_rule)

Found: TypeAlias = Iterator[Violation]
Checker: TypeAlias = Callable[[History, FinalState], Found]


def lost(history: History, final: FinalState) -> Found:
    """Every acknowledged job is stored or was deleted by the operator; every row was enqueued.

    A simulation is shorter than every retention, so nothing is purged.
    """
    deleted = {
        transition.key
        for transition in history.of(Transitioned)
        if transition.target is None and transition.who == OPERATOR
    }
    stored = {transition.key for transition in history.of(Transitioned)} - deleted
    for ack in history.of(Acknowledged):
        key = key_of(ack.id)
        row = final.rows.get(key)
        if row is None and key not in deleted:
            yield Violation(
                "lost", key, f"job {ack.number} ({ack.id}) was acknowledged and is gone"
            )
        elif row is not None and not ack.duplicate and payload_view(row).number != ack.number:
            yield Violation("lost", key, f"job {ack.number} ({ack.id}) holds another job's payload")
    for key in sorted(stored - final.rows.keys()):
        yield Violation("lost", key, f"row {key} was stored and is gone, and no person deleted it")
    for key in sorted(final.rows.keys() - stored):
        yield Violation("lost", key, f"row {key} is there although nothing stored it")


def doubled_finishes(history: History, final: FinalState) -> Found:
    """At most one finish is applied for each claim."""
    applied: set[tuple[int, int]] = set()
    for finish in history.of(Finished):
        if finish.verdict is Verdict.APPLIED:
            claim = (finish.key, finish.epoch)
            if claim in applied:
                yield Violation(
                    "doubled", finish.key, f"{_claim(claim)} was finished twice, at {finish.at}"
                )
            applied.add(claim)


def fenced(history: History, final: FinalState) -> Found:
    """A finish is applied only to a row that runs under the same owner and epoch (fencing)."""
    held: dict[int, tuple[int | None, int]] = {}
    ended: set[tuple[int, int | None, int]] = set()
    for record in history.effects:
        if isinstance(record, Transitioned):
            if record.event is Event.CLAIM:
                held[record.key] = (record.owner, record.epoch)
            elif record.event in _FINISHES:
                ended.add((record.key, *held.get(record.key, (None, -1))))
        elif isinstance(record, Finished):
            right = (record.key, record.owner, record.epoch) in ended
            if record.verdict is Verdict.APPLIED and not right:
                owner, epoch = held.get(record.key, (None, -1))
                yield Violation(
                    "fence",
                    record.key,
                    f"{_claim((record.key, record.epoch))} of process {record.owner} was applied "
                    f"at {record.at} although process {owner} held epoch {epoch}",
                )


def legal_transitions(history: History, final: FinalState) -> Found:
    """Only transitions of the table, each from the job's current state, with the right attempts."""
    last: dict[int, Transitioned] = {}
    for transition in history.of(Transitioned):
        before = last.get(transition.key)
        source = None if before is None else before.target
        if transition.source != source:
            yield Violation(
                "illegal",
                transition.key,
                f"{_transition(transition)} although the job was {source}",
            )
        attempts_before = 0 if before is None else before.attempts
        rules = _RULES.get((transition.source, transition.event, transition.target), ())
        if not rules:
            yield Violation(
                "illegal", transition.key, f"{_transition(transition)} is not in the table"
            )
        elif not any(
            _attempts_after(rule.attempts, attempts_before) == transition.attempts for rule in rules
        ):
            allowed = "/".join(rule.attempts.value for rule in rules)
            yield Violation(
                "attempts",
                transition.key,
                f"{_transition(transition)}: {attempts_before} before, should be {allowed}",
            )
        last[transition.key] = transition


def epochs(history: History, final: FinalState) -> Found:
    """An epoch never falls; a claim, a reap and a release raise it."""
    seen: dict[int, int] = {}
    for transition in history.of(Transitioned):
        before = seen.get(transition.key, 0)
        raised = transition.event in (Event.CLAIM, Event.REAP, Event.RELEASE)
        if transition.epoch < before or (raised and transition.epoch == before):
            yield Violation(
                "epoch", transition.key, f"{_transition(transition)} after epoch {before}"
            )
        seen[transition.key] = transition.epoch


def rows_consistent(history: History, final: FinalState) -> Found:
    """Owner if and only if running; finished if and only if terminal; attempts within the limit."""
    for row in final.rows.values():
        if (row.owner is not None) != (row.status is JobStatus.RUNNING):
            yield Violation(
                "owner", row.key, f"job {row.key} is {row.status} and owned by {row.owner}"
            )
        if (row.finished_at is not None) != (row.status in TERMINAL):
            yield Violation(
                "ended", row.key, f"job {row.key} is {row.status}, ended at {row.finished_at}"
            )
        if not 0 <= row.attempts <= row.max_attempts:
            yield Violation(
                "attempts", row.key, f"job {row.key}: {row.attempts} of {row.max_attempts}"
            )
    for transition in history.of(Transitioned):
        if (transition.owner is not None) != (transition.target is JobStatus.RUNNING):
            yield Violation(
                "owner",
                transition.key,
                f"{_transition(transition)} leaves the owner {transition.owner}",
            )
        row = final.rows.get(transition.key)
        if row is not None and not 0 <= transition.attempts <= row.max_attempts:
            yield Violation(
                "attempts", transition.key, f"{_transition(transition)} of {row.max_attempts}"
            )


def stuck(history: History, final: FinalState) -> Found:
    """After the faults have stopped and the bound has passed, every job has ended."""
    for row in final.rows.values():
        if row.status not in TERMINAL:
            yield Violation(
                "stuck",
                row.key,
                f"job {row.key} ({row.kind} in {row.queue}) is still {row.status}, attempts "
                f"{row.attempts}, owner {row.owner}, epoch {row.epoch}",
            )


def counters(history: History, final: FinalState) -> Found:
    """The counters equal the rows."""
    rows = Counter((row.queue, row.status) for row in final.rows.values())
    for key in sorted({*rows, *final.counts}):
        if rows.get(key, 0) != final.counts.get(key, 0):
            yield Violation(
                "counters",
                None,
                f"{key[0]}/{key[1]}: {rows.get(key, 0)} rows, counted {final.counts.get(key, 0)}",
            )


def successors_stored(history: History, final: FinalState) -> Found:
    """Successors are stored once per applied finish; a dead letter once per transition to dead."""
    ids = {row.id: row.key for row in final.rows.values()}
    promised: Counter[int] = Counter()
    for finish in history.of(Finished):
        if finish.verdict is Verdict.APPLIED and finish.status is JobStatus.DONE:
            promised[finish.key] += finish.carried
    children = Counter(
        ids[parent] for row in final.rows.values() if (parent := payload_view(row).parent) in ids
    )
    for key in sorted({*promised, *children} & final.rows.keys()):
        if promised[key] != children[key]:
            yield Violation(
                "carried", key, f"job {key} carried {promised[key]} and {children[key]} were stored"
            )
    deaths = Counter(
        transition.key
        for transition in history.of(Transitioned)
        if transition.target is JobStatus.DEAD
    )
    letters = Counter(
        ids.get(dead_job.id)
        for row in final.rows.values()
        if (dead_job := payload_view(row).job) is not None
    )
    for row in final.rows.values():
        expected = deaths[row.key] if row.on_dead is not None else 0
        if letters[row.key] != expected:
            yield Violation(
                "carried", row.key, f"job {row.key}: {expected} deaths, {letters[row.key]} letters"
            )


def deduplicated(history: History, final: FinalState) -> Found:
    """At most one live job per kind and key."""
    live: dict[tuple[str, str], int] = {}
    for transition in history.of(Transitioned):
        row = final.rows.get(transition.key)
        if row is None or row.dedupe_key is None or row.unique_while is not UniqueWhile.LIVE:
            continue
        name = (row.kind, row.dedupe_key)
        if transition.target in LIVE:
            holder = live.setdefault(name, transition.key)
            if holder != transition.key:
                yield Violation(
                    "dedupe",
                    transition.key,
                    f"{name} is held by job {holder} and {_transition(transition)} takes it too",
                )
        elif live.get(name) == transition.key:
            del live[name]


def only_dead_processes_reaped(history: History, final: FinalState) -> Found:
    """Jobs are reaped only from processes that deregistered, were replaced, or lost their lease."""
    lease: dict[int, int] = {}
    alive_until: dict[int, int] = {}
    for record in history.effects:
        match record:
            case Registered(at=at, owner=owner, lease_us=lease_us, replaced=replaced):
                lease[owner] = lease_us
                alive_until[owner] = at + lease_us
                alive_until.update((former, at) for former in replaced)
            case HeartbeatReceived(at=at, owner=owner, alive=True):
                alive_until[owner] = at + lease.get(owner, 0)
            case Deregistered(at=at, owner=owner):
                alive_until[owner] = at
            case Transitioned(at=at, event=Event.REAP, former=former) if former is not None:
                until = alive_until.get(former, 0)
                if at < until:
                    yield Violation(
                        "reap",
                        record.key,
                        f"{_transition(record)} from process {former}, alive until {until}",
                    )
            case _:
                pass


def claims_allowed(history: History, final: FinalState) -> Found:
    """Nothing is claimed before it is due, after it expired, or from a paused queue."""
    paused: set[str] = set()
    for record in history.effects:
        if isinstance(record, Paused):
            (paused.add if record.paused else paused.discard)(record.queue)
        elif isinstance(record, Claimed):
            what = f"{_claim((record.key, record.epoch))} was claimed at {record.at}"
            if record.queue in paused:
                yield Violation(
                    "paused", record.key, f"{what} from the paused queue {record.queue}"
                )
            if record.run_at > record.now:
                yield Violation(
                    "early", record.key, f"{what}, {record.run_at - record.now} µs early"
                )
            row = final.rows.get(record.key)
            if row is not None and row.expires_at is not None and row.expires_at < record.now:
                yield Violation(
                    "expired", record.key, f"{what}, {record.now - row.expires_at} µs late"
                )


def no_loop_errors(history: History, final: FinalState) -> Found:
    """No error reached the exception handler of the event loop."""
    for trouble in final.errors:
        yield Violation("trouble", None, trouble)


def _attempts_after(effect: Attempts, attempts_before: int) -> int:
    match effect:
        case Attempts.KEPT:
            return attempts_before
        case Attempts.SPENT:
            return attempts_before + 1
        case Attempts.GIVEN_BACK:
            return max(attempts_before - 1, 0)
        case Attempts.RESET:
            return 0


def _claim(claim: tuple[int, int]) -> str:
    return f"job {claim[0]} epoch {claim[1]}"


def _transition(transition: Transitioned) -> str:
    return (
        f"job {transition.key} {transition.event}: {transition.source} to {transition.target} "
        f"at {transition.at}, epoch {transition.epoch}, attempts {transition.attempts}"
    )
