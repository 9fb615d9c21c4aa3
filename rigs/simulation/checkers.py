"""The judges: each reads the history and the final store, and names what must not have happened.

No judge asks the engine or the backend whether it was right. A judge that finds nothing yields
nothing; the texts name the job and the instant, so that the trace can be searched for them.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeAlias

from msgspec import Struct

from forge_jobs.core.job import UniqueWhile
from forge_jobs.core.status import LIVE, TERMINAL, TRANSITIONS, Attempts, Event, JobStatus, Rule
from forge_jobs.store.jobs import Verdict
from rigs.simulation.final import Final, parcel
from rigs.simulation.history import (
    Acked,
    Beaten,
    Claimed,
    Finished,
    History,
    Left,
    Moved,
    Paused,
    Registered,
    key_of,
)

OPERATOR = "operator"


class Violation(Struct, frozen=True):
    """A broken promise: which rule, what happened, and to which row."""

    rule: str
    key: int | None
    text: str


_FINISHES = (
    Event.DONE, Event.FAIL, Event.DIE, Event.CRASH, Event.THROTTLE, Event.SNOOZE, Event.MISSING,
)  # fmt: skip

_RULES: dict[tuple[JobStatus | None, Event, JobStatus | None], list[Rule]] = {}
for _rule in TRANSITIONS:
    _RULES.setdefault((_rule.source, _rule.event, _rule.target), []).append(_rule)

Found: TypeAlias = Iterator[Violation]
Checker: TypeAlias = Callable[[History, Final], Found]


def lost(history: History, final: Final) -> Found:
    """Every acknowledged job is there, or the operator deleted it; nothing came from nowhere.

    A world is far too young for the clean-up to find anything.
    """
    deleted = {
        move.key for move in history.of(Moved) if move.target is None and move.who == OPERATOR
    }
    stored = {move.key for move in history.of(Moved)} - deleted
    for ack in history.of(Acked):
        key = key_of(ack.id)
        row = final.rows.get(key)
        if row is None and key not in deleted:
            yield Violation(
                "lost", key, f"job {ack.number} ({ack.id}) was acknowledged and is gone"
            )
        elif row is not None and not ack.duplicate and parcel(row).number != ack.number:
            yield Violation("lost", key, f"job {ack.number} ({ack.id}) holds another job's payload")
    for key in sorted(stored - final.rows.keys()):
        yield Violation("lost", key, f"row {key} was stored and is gone, and no person deleted it")
    for key in sorted(final.rows.keys() - stored):
        yield Violation("lost", key, f"row {key} is there although nothing stored it")


def doubled_finishes(history: History, final: Final) -> Found:
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


def fenced(history: History, final: Final) -> Found:
    """A finish is applied only to a row that runs under the very same owner and epoch."""
    held: dict[int, tuple[int | None, int]] = {}
    ended: set[tuple[int, int | None, int]] = set()
    for record in history.records:
        if isinstance(record, Moved):
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


def legal_transitions(history: History, final: Final) -> Found:
    """Only moves of the table, each from where the job stood, with the attempts the table says."""
    stood: dict[int, Moved] = {}
    for move in history.of(Moved):
        before = stood.get(move.key)
        source = None if before is None else before.target
        if move.source != source:
            yield Violation(
                "illegal", move.key, f"{_transition(move)} although the job stood at {source}"
            )
        had = 0 if before is None else before.attempts
        rules = _RULES.get((move.source, move.event, move.target), ())
        if not rules:
            yield Violation("illegal", move.key, f"{_transition(move)} is not in the table")
        elif not any(_attempts_after(rule.attempts, had) == move.attempts for rule in rules):
            allowed = "/".join(rule.attempts.value for rule in rules)
            yield Violation(
                "attempts", move.key, f"{_transition(move)}: {had} before, should be {allowed}"
            )
        stood[move.key] = move


def epochs(history: History, final: Final) -> Found:
    """An epoch never falls; a claim, a reap and a release raise it."""
    seen: dict[int, int] = {}
    for move in history.of(Moved):
        before = seen.get(move.key, 0)
        raised = move.event in (Event.CLAIM, Event.REAP, Event.RELEASE)
        if move.epoch < before or (raised and move.epoch == before):
            yield Violation("epoch", move.key, f"{_transition(move)} after epoch {before}")
        seen[move.key] = move.epoch


def rows_agree(history: History, final: Final) -> Found:
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
    for move in history.of(Moved):
        if (move.owner is not None) != (move.target is JobStatus.RUNNING):
            yield Violation("owner", move.key, f"{_transition(move)} leaves the owner {move.owner}")
        row = final.rows.get(move.key)
        if row is not None and not 0 <= move.attempts <= row.max_attempts:
            yield Violation("attempts", move.key, f"{_transition(move)} of {row.max_attempts}")


def stuck(history: History, final: Final) -> Found:
    """After the faults have stopped and the bound has passed, every job has ended."""
    for row in final.rows.values():
        if row.status not in TERMINAL:
            yield Violation(
                "stuck",
                row.key,
                f"job {row.key} ({row.kind} in {row.queue}) is still {row.status}, attempts "
                f"{row.attempts}, owner {row.owner}, epoch {row.epoch}",
            )


def counters(history: History, final: Final) -> Found:
    """The books say what the rows say."""
    rows = Counter((row.queue, row.status) for row in final.rows.values())
    for place in sorted({*rows, *final.counts}):
        if rows.get(place, 0) != final.counts.get(place, 0):
            yield Violation(
                "counters",
                None,
                f"{place[0]}/{place[1]}: {rows.get(place, 0)} rows, counted "
                f"{final.counts.get(place, 0)}",
            )


def carried(history: History, final: Final) -> Found:
    """Jobs carried by a success exist once per applied finish; a dead letter once per death."""
    ids = {row.id: row.key for row in final.rows.values()}
    promised: Counter[int] = Counter()
    for finish in history.of(Finished):
        if finish.verdict is Verdict.APPLIED and finish.status is JobStatus.DONE:
            promised[finish.key] += finish.carried
    children = Counter(
        ids[parent] for row in final.rows.values() if (parent := parcel(row).parent) in ids
    )
    for key in sorted({*promised, *children} & final.rows.keys()):
        if promised[key] != children[key]:
            yield Violation(
                "carried", key, f"job {key} carried {promised[key]} and {children[key]} were stored"
            )
    deaths = Counter(move.key for move in history.of(Moved) if move.target is JobStatus.DEAD)
    letters = Counter(
        ids.get(told.id) for row in final.rows.values() if (told := parcel(row).job) is not None
    )
    for row in final.rows.values():
        expected = deaths[row.key] if row.on_dead is not None else 0
        if letters[row.key] != expected:
            yield Violation(
                "carried", row.key, f"job {row.key}: {expected} deaths, {letters[row.key]} letters"
            )


def deduplicated(history: History, final: Final) -> Found:
    """At most one live job per kind and key."""
    live: dict[tuple[str, str], int] = {}
    for move in history.of(Moved):
        row = final.rows.get(move.key)
        if row is None or row.dedupe_key is None or row.unique_while is not UniqueWhile.LIVE:
            continue
        name = (row.kind, row.dedupe_key)
        if move.target in LIVE:
            holder = live.setdefault(name, move.key)
            if holder != move.key:
                yield Violation(
                    "dedupe",
                    move.key,
                    f"{name} is held by job {holder} and {_transition(move)} takes it too",
                )
        elif live.get(name) == move.key:
            del live[name]


def reaped_the_dead(history: History, final: Final) -> Found:
    """Jobs are taken only from processes that left, were replaced, or let their lease run out."""
    lease: dict[int, int] = {}
    alive_until: dict[int, int] = {}
    for record in history.records:
        match record:
            case Registered(at=at, owner=owner, lease_us=lease_us, replaced=replaced):
                lease[owner] = lease_us
                alive_until[owner] = at + lease_us
                alive_until.update((former, at) for former in replaced)
            case Beaten(at=at, owner=owner, alive=True):
                alive_until[owner] = at + lease.get(owner, 0)
            case Left(at=at, owner=owner):
                alive_until[owner] = at
            case Moved(at=at, event=Event.REAP, former=former) if former is not None:
                until = alive_until.get(former, 0)
                if at < until:
                    yield Violation(
                        "reap",
                        record.key,
                        f"{_transition(record)} from process {former}, alive until {until}",
                    )
            case _:
                pass


def claimed_rightly(history: History, final: Final) -> Found:
    """Nothing is claimed before it is due, after it expired, or from a paused queue."""
    paused: set[str] = set()
    for record in history.records:
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


def untroubled(history: History, final: Final) -> Found:
    """No error escaped into the event loop."""
    for trouble in final.troubles:
        yield Violation("trouble", None, trouble)


def _attempts_after(effect: Attempts, had: int) -> int:
    match effect:
        case Attempts.KEPT:
            return had
        case Attempts.SPENT:
            return had + 1
        case Attempts.GIVEN_BACK:
            return max(had - 1, 0)
        case Attempts.RESET:
            return 0


def _claim(claim: tuple[int, int]) -> str:
    return f"job {claim[0]} epoch {claim[1]}"


def _transition(move: Moved) -> str:
    return (
        f"job {move.key} {move.event}: {move.source} to {move.target} at {move.at}, "
        f"epoch {move.epoch}, attempts {move.attempts}"
    )
