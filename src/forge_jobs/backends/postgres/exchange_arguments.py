"""Encodes what an exchange writes as arguments of ``exchange_v1``: finishes, releases, start marks
and notes."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct

from forge_jobs.backends.shared.error_groups import group_of
from forge_jobs.core.decide import Finish
from forge_jobs.core.errors import Invalid
from forge_jobs.core.events import WaitTopic
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Claim
from forge_jobs.core.status import Event, JobStatus, targets
from forge_jobs.store.jobs import Exchange, Note

from . import roll_up, rows
from .error_groups import heading

_OUTCOMES: Final = frozenset(
    (event, target)
    for event in (
        Event.DONE, Event.FAIL, Event.DIE, Event.CRASH, Event.THROTTLE, Event.SNOOZE,
        Event.SUSPEND, Event.RESTART, Event.MISSING,
    )
    for target in targets(JobStatus.RUNNING, event)
)  # fmt: skip
_key: Final = attrgetter("key")
_claim: Final = attrgetter("key", "epoch")
# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_DONE, _THROTTLE, _IS_DONE, _DEAD = Event.DONE, Event.THROTTLE, JobStatus.DONE, JobStatus.DEAD

_NO_GROUP: Final[Mapping[str, str]] = {}
# For an exchange without writes, and for one without claims.
NO_WRITES: Final = (None,) * 20
NO_CLAIMS: Final = (None,) * 5


class _FinishStep(Struct, frozen=True, omit_defaults=True):
    """A step that a restart keeps."""

    name: str
    kind: str
    began_at: Instant
    ended_at: Instant
    value: str | None
    fingerprint: int | None = None


class _OtherFinish(Struct, frozen=True, omit_defaults=True):
    """A finish that is not Done, as the server function reads it. ``stepped``: the job has steps;
    ``step`` to ``topics`` are its wait; ``payload`` and ``steps`` belong to a restart;
    ``error_group`` and ``heading`` to an error that is counted."""

    key: int
    epoch: int
    event: str
    status: str
    delay_s: float | None
    error: str | None
    ran_s: float
    waited_s: float | None
    traceback: str | None = None
    stepped: bool = False
    returned: bool = False
    run_at: Instant | None = None
    step: str | None = None
    began_at: Instant | None = None
    deadline: Instant | None = None
    topics: tuple[WaitTopic, ...] | None = None
    payload: str | None = None
    steps: tuple[_FinishStep, ...] | None = None
    error_group: str | None = None
    heading: str | None = None


def write_arguments(
    request: Exchange, finishes: Sequence[Finish], delays: dict[int, float]
) -> list[Any]:
    """The arguments of finishes, releases, start marks and notes."""
    done, timed = [finish for finish in finishes if finish.event is _DONE], request.timed
    rest = () if len(done) == len(finishes) else [
        _OtherFinish(
            finish.key, finish.epoch, finish.event.value, finish.status.value,
            delays.get(finish.key, finish.delay_s),
            None if finish.error is None else rows.storable(finish.error), finish.ran_s,
            finish.waited_s if timed and finish.event is not Event.MISSING else None,
            None if finish.traceback is None else rows.storable(finish.traceback),
            *(() if finish.steps is None else _step_fields(finish)),
            **(_NO_GROUP if finish.error is None else _group_fields(finish, finish.error)),
        )
        for finish in finishes
        if finish.event is not _DONE
    ]  # fmt: skip
    notes, lines = _note_arguments(request.notes)
    return [
        *(
            (
                [finish.key for finish in done],
                [finish.epoch for finish in done],
                _if_any([finish.result for finish in done]),
                [finish.ran_s for finish in done],
                rows.as_json([finish.waited_s for finish in done]) if timed else None,
                *roll_up.done_entries(done, timed=timed),
            )
            if done
            else (None,) * 13
        ),
        rows.as_json(rest) if rest else None,
        *_pairs(request.release),
        *_pairs(request.started),
        notes,
        lines,
    ]


def unique(finishes: Sequence[Finish]) -> list[Finish]:
    """The finishes to send, in order of their keys: of repeated ones only the first."""
    plain = {
        finish.key for finish in finishes if finish.event is _DONE and finish.status is _IS_DONE
    }
    if len(plain) == len(finishes):
        return sorted(finishes, key=_key)
    seen: dict[tuple[int, int], Finish] = {}
    for finish in finishes:
        if (finish.event, finish.status) not in _OUTCOMES:
            raise Invalid(f"a claim cannot end as {finish.status} by {finish.event}")
        steps = finish.steps
        if finish.event is Event.SUSPEND and (steps is None or steps.wait is None):
            raise Invalid("a claim cannot end by suspend without a wait")
        if finish.event is Event.RESTART and (steps is None or steps.payload is None):
            raise Invalid("a claim cannot end by restart without a payload")
        seen.setdefault((finish.key, finish.epoch), finish)
    return sorted(seen.values(), key=_claim)


def is_plain(finishes: Sequence[Finish]) -> bool:
    """Whether one statement can write these finishes."""
    return not [
        finish
        for finish in finishes
        if finish.jobs or finish.status is _DEAD or finish.event is _THROTTLE
    ]


def only_claims(request: Exchange) -> bool:
    """Whether an exchange writes nothing but claims."""
    writes = request.finish or request.release or request.started or request.notes
    return bool(request.want) and not writes and not (request.steps or request.waits)


def _step_fields(finish: Finish) -> tuple[Any, ...]:
    """The fields of an ``_OtherFinish`` from ``stepped`` on."""
    extra = finish.steps
    assert extra is not None
    wait = extra.wait
    waits = (None,) * 4 if wait is None else (
        wait.step, wait.began_at, wait.deadline, wait.topics
    )  # fmt: skip
    kept = None
    if finish.event is Event.RESTART:
        kept = tuple(
            _FinishStep(
                step.name, step.kind.value, step.began_at, step.ended_at, _text(step.value),
                step.fingerprint,
            )
            for step in extra.steps
        )  # fmt: skip
    return True, extra.attempt_returned, extra.run_at, *waits, _text(extra.payload), kept


def _group_fields(finish: Finish, error: str) -> Mapping[str, str]:
    """The error group of a finish, unless it is the search for a worker that has a handler."""
    if finish.event is Event.MISSING and finish.status is JobStatus.SCHEDULED:
        return _NO_GROUP
    group = group_of(error, finish.traceback)
    return {"error_group": group.id, "heading": heading(group)}


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _if_any(column: list[Any]) -> list[Any] | None:
    return None if column.count(None) == len(column) else column


def _pairs(claims: Sequence[Claim]) -> tuple[list[int] | None, list[int] | None]:
    if not claims:
        return None, None
    ordered = sorted(claims, key=_claim)
    return [claim.key for claim in ordered], [claim.epoch for claim in ordered]


def _note_arguments(notes: Sequence[Note]) -> tuple[str | None, str | None]:
    """The last progress of each claim, and all log lines in their order, as JSON."""
    if not notes:
        return None, None
    progress: dict[tuple[int, int], dict[str, Any]] = {}
    lines: list[dict[str, Any]] = []
    for note in notes:
        key, epoch = note.claim.key, note.claim.epoch
        last = progress.setdefault((key, epoch), {"key": key, "epoch": epoch})
        if note.progress is not None:
            last["progress"] = note.progress
        if note.progress_note is not None:
            last["note"] = rows.storable(note.progress_note)
        lines += (
            {
                "key": key, "epoch": epoch, "at": line.at, "level": rows.storable(line.level),
                "message": rows.storable(line.message),
            }
            for line in note.lines
        )  # fmt: skip
    changed = [last for last in progress.values() if len(last) > 2]
    return (
        rows.as_json(changed) if changed else None,
        rows.as_json(lines) if lines else None,
    )
