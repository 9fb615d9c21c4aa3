"""Holds the steps and waits of running handlers until the next exchange, and answers them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec import Struct

from forge_jobs.core.steps import StepWrite
from forge_jobs.store.jobs import StepAnswer, WaitCheck

from .finish_buffer import EMPTY_BATCH, Batch
from .wake_signal import WakeSignal

OnAnswer: TypeAlias = Callable[[StepAnswer | Exception], None]

# Fewer steps than this go into one exchange: two exchanges would cost more than they save.
_MIN_HALVED = 16


class PendingStep(Struct, frozen=True):
    """A step, or a wait that asks for an event, and who is told the answer."""

    sent: StepWrite | WaitCheck
    on_answer: OnAnswer

    @property
    def key(self) -> int:
        """The job that sent it."""
        return self.sent.key if isinstance(self.sent, StepWrite) else self.sent.claim.key


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

    It is bounded by the handlers: each waits for the answer before it goes on. ``overlap``: the
    store works in another process, so that handlers can run while it writes. The handlers then
    form two groups of one size that take turns. Without it most exchanges alternate between one
    step and all others, and nobody runs while those are written (docs/decisions/0163).
    """

    __slots__ = ("_overlap", "_pending", "_taken", "_wake")

    def __init__(self, wake: WakeSignal, *, overlap: bool = False) -> None:
        self._wake = wake
        self._overlap = overlap
        self._pending: list[PendingStep] = []
        self._taken = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self._pending

    def add(self, sent: StepWrite | WaitCheck, on_answer: OnAnswer) -> None:
        """Send it with the next exchange, which is due at once."""
        if not self._pending:
            self._wake.notify()
        self._pending.append(PendingStep(sent, on_answer))

    def take(self, limit: int, beside: Batch = EMPTY_BATCH) -> StepBatch:
        """The next batch. ``beside``: the finishes and releases of the same exchange."""
        if not self._pending:
            self._taken = 0
            return EMPTY_STEPS
        if self._overlap and len(self._pending) >= _MIN_HALVED and not self._ends_in(beside):
            # Those of the batch before have their answers, and most of them send a step again.
            limit = min(limit, (len(self._pending) + self._taken + 1) // 2)
        taken, self._pending = self._pending[:limit], self._pending[limit:]
        self._taken = len(taken)
        waits = [one for one in taken if isinstance(one.sent, WaitCheck)]
        if not waits:
            return StepBatch(taken)
        return StepBatch([one for one in taken if isinstance(one.sent, StepWrite)], waits)

    def _ends_in(self, batch: Batch) -> bool:
        """Whether a job ends in that batch that has a step here: one that was cancelled after the
        function of its step had run. After the finish the step could not be stored any more."""
        ended = {one.key for one in (*batch.finishes, *batch.releases)}
        return bool(ended) and any(one.key in ended for one in self._pending)

    def put_back(self, batch: StepBatch) -> None:
        """The batch was not stored, or perhaps not: send it again, before all others."""
        self._pending[:0] = [*batch.steps, *batch.waits]

    def fail_all(self, error: Exception) -> None:
        """Nothing is sent any more: everybody is told the error."""
        pending, self._pending = self._pending, []
        for one in pending:
            one.on_answer(error)
