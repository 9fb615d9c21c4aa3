"""Encodes steps and waits of an exchange as arguments of ``exchange_steps_v1``, and decodes its
answers."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from forge_jobs.core.decide import Finish
from forge_jobs.core.events import WaitTopic
from forge_jobs.core.instant import Instant
from forge_jobs.core.status import Event
from forge_jobs.core.steps import StepRecord, StepWrite
from forge_jobs.store.jobs import Exchange, StepAnswer, Verdict

from . import rows
from .rows import StoredStep

# Entries that were not simply stored, or that found an event: (position, the stored step); None
# instead of a step if the claim is not current.
Found = list[tuple[int, StoredStep | None]]

_STALE: Final = StepAnswer(Verdict.STALE)
_NO_EVENT: Final = StepAnswer(Verdict.APPLIED)
_RESTART, _SUSPEND, _DONE = Event.RESTART, Event.SUSPEND, Event.DONE


class _AskedWait(Struct, frozen=True):
    """A wait as the server function reads it. ``suspends``: its run ends with it."""

    key: int
    epoch: int
    step: str
    began_at: Instant
    topics: tuple[WaitTopic, ...]
    suspends: bool


class StepArguments:
    """The steps and waits of one exchange. Those of its finishes come after those of the request:
    the same claim guards both, so that they are stored if and only if their finish is applied."""

    def __init__(self, request: Exchange, ends: Sequence[Finish]) -> None:
        self._steps = list(request.steps)
        self._waits = [(check.claim.key, check.claim.epoch, check.wait) for check in request.waits]
        self._asked = (len(self._steps), len(self._waits))
        self._suspends: dict[int, Finish] = {}
        self._restarts: list[Finish] = []
        self._ends = False
        self._done: list[int] = []
        for finish in ends:
            self._add(finish)
        # In one order: two calls of one process never wait for each other in a circle.
        self._order = sorted(
            range(len(self._steps)), key=lambda n: (self._steps[n].key, self._steps[n].name)
        )

    def _add(self, finish: Finish) -> None:
        extra = finish.steps
        if extra is None:
            return
        if finish.event is _DONE:
            self._done.append(finish.key)
        else:
            self._ends = True
        if finish.event is _RESTART:
            self._restarts.append(finish)
        else:
            self._steps += extra.steps
        if finish.event is _SUSPEND and extra.wait is not None:
            self._suspends[len(self._waits)] = finish
            self._waits.append((finish.key, finish.epoch, extra.wait))

    @property
    def locks(self) -> list[Any]:
        """The topics, and whether claims end."""
        topics = {topic.topic for _, _, wait in self._waits for topic in wait.topics}
        return [sorted(topics) or None, self._ends]

    @property
    def values(self) -> list[Any]:
        """The arguments before those of ``exchange_v1``."""
        steps = _columns([self._steps[n] for n in self._order])
        return [*self.locks, self._done or None, *steps, self._asked_waits()]

    def _asked_waits(self) -> str | None:
        if not self._waits:
            return None
        return rows.as_json(
            [
                _AskedWait(key, epoch, wait.step, wait.began_at, wait.topics, n in self._suspends)
                for n, (key, epoch, wait) in enumerate(self._waits)
            ]
        )

    def step_answers(self, found: Found | None) -> list[StepAnswer]:
        """One answer per step of the request."""
        known = {self._order[position]: stored for position, stored in found or ()}
        answers: list[StepAnswer] = []
        for position, step in enumerate(self._steps[: self._asked[0]]):
            if position not in known:
                answers.append(StepAnswer(Verdict.APPLIED, _record(step)))
            else:
                answers.append(_answer(known[position]))
        return answers

    def wait_answers(self, found: Found | None) -> list[StepAnswer]:
        """One answer per wait of the request."""
        known = {position: _answer(stored) for position, stored in found or ()}
        return [known.get(position, _NO_EVENT) for position in range(self._asked[1])]

    def pending(self, found: Found | None) -> list[Finish]:
        """The finishes whose jobs are pending again, unless they were cancelled or stale."""
        taken = {position for position, stored in found or () if stored is not None}
        return [
            *self._restarts, *(end for position, end in self._suspends.items() if position in taken)
        ]  # fmt: skip


def of(request: Exchange, finishes: Sequence[Finish]) -> StepArguments | None:
    """The steps and waits of an exchange; None if it has none, which is the common case."""
    ends = [finish for finish in finishes if finish.steps is not None]
    if not ends and not request.steps and not request.waits:
        return None
    return StepArguments(request, ends)


def _answer(stored: StoredStep | None) -> StepAnswer:
    return _STALE if stored is None else StepAnswer(Verdict.ALREADY, rows.step_record(stored))


def _record(step: StepWrite) -> StepRecord:
    size = 0 if step.value is None else len(step.value)
    return StepRecord(
        step.name, step.kind, step.epoch, step.began_at, step.ended_at, step.value,
        step.fingerprint, size,
    )  # fmt: skip


def _columns(steps: Sequence[StepWrite]) -> list[Any]:
    if not steps:
        return [None] * 8
    return [
        [step.key for step in steps],
        [step.epoch for step in steps],
        [step.name for step in steps],
        [step.kind.value for step in steps],
        [step.began_at for step in steps],
        [step.ended_at for step in steps],
        [step.value for step in steps],
        [step.fingerprint for step in steps],
    ]
