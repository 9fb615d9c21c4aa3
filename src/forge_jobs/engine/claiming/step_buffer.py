"""Holds the steps and waits of running handlers until the next exchange, and answers them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec import Struct

from forge_jobs.core.steps import StepWrite
from forge_jobs.store.jobs import StepAnswer, WaitCheck

from .wake_signal import WakeSignal

OnAnswer: TypeAlias = Callable[[StepAnswer | Exception], None]


class PendingStep(Struct, frozen=True):
    """A step, or a wait that asks for an event, and who is told the answer."""

    sent: StepWrite | WaitCheck
    on_answer: OnAnswer


@dataclass(frozen=True, slots=True)
class StepBatch:
    """What one exchange stores for running handlers."""

    steps: Sequence[PendingStep] = ()
    waits: Sequence[PendingStep] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return not (self.steps or self.waits)

    @property
    def is_single(self) -> bool:
        """Whether it is one step or one wait."""
        return len(self.steps) + len(self.waits) == 1

    @property
    def writes(self) -> list[StepWrite]:
        """The steps as the store takes them."""
        return [one.sent for one in self.steps if isinstance(one.sent, StepWrite)]

    @property
    def checks(self) -> list[WaitCheck]:
        """The waits as the store takes them."""
        return [one.sent for one in self.waits if isinstance(one.sent, WaitCheck)]

    def answer(self, steps: Sequence[StepAnswer], waits: Sequence[StepAnswer]) -> None:
        """Tell everybody what the store said."""
        for one, reply in zip(self.steps, steps, strict=True):
            one.on_answer(reply)
        for one, reply in zip(self.waits, waits, strict=True):
            one.on_answer(reply)

    def fail(self, error: Exception) -> None:
        """Tell everybody the error."""
        for one in (*self.steps, *self.waits):
            one.on_answer(error)


EMPTY_STEPS = StepBatch()


class StepBuffer:
    """Gathers while an exchange is in flight. Only the job loop uses it.

    It is bounded by the handlers: each waits for the answer before it goes on.
    """

    __slots__ = ("_pending", "_wake")

    def __init__(self, wake: WakeSignal) -> None:
        self._wake = wake
        self._pending: list[PendingStep] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self._pending

    def add(self, sent: StepWrite | WaitCheck, on_answer: OnAnswer) -> None:
        """Send it with the next exchange, which is due at once."""
        if not self._pending:
            self._wake.notify()
        self._pending.append(PendingStep(sent, on_answer))

    def take(self, limit: int) -> StepBatch:
        """The next batch."""
        if not self._pending:
            return EMPTY_STEPS
        taken, self._pending = self._pending[:limit], self._pending[limit:]
        waits = [one for one in taken if isinstance(one.sent, WaitCheck)]
        if not waits:
            return StepBatch(taken)
        return StepBatch([one for one in taken if isinstance(one.sent, StepWrite)], waits)

    def put_back(self, batch: StepBatch) -> None:
        """The batch was not stored, or perhaps not: send it again, before all others."""
        self._pending[:0] = [*batch.steps, *batch.waits]

    def fail_all(self, error: Exception) -> None:
        """Nothing is sent any more: everybody is told the error."""
        pending, self._pending = self._pending, []
        for one in pending:
            one.on_answer(error)
