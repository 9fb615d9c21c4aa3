"""Bulk work in the background: started once, looked at while it goes on, stopped between steps.

Operations live in the process that runs them and are remembered for as long as it lives, the last
hundred of them. The audit has an entry when one begins and one when it ends, also when it is
stopped half-way; a beginning without an end means that the process was lost, and that what is left
to do can be seen by the same filter.
"""

import asyncio
import contextlib
import logging
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from forge_jobs.core.errors import Conflict, ForgeError, NotFound
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.selection import Acted, Selection
from forge_jobs.kit import redact
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy, new_ulid

from .actions import Action, JobActions, subject_of
from .views import View

REMEMBERED: Final = 100
AT_ONCE: Final = 8

_LOG = logging.getLogger(__name__)


class OperationState(StrEnum):
    """Where an operation stands."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class Operation(View, frozen=True, kw_only=True):
    """One action on many jobs. ``expected`` was counted before it began, up to 10,000."""

    id: str
    action: Action
    actor: str
    state: OperationState
    expected: int
    expected_more: bool
    changed: int = 0
    requested: int = 0
    skipped: int = 0
    missing: int = 0
    begun_at: datetime
    ended_at: datetime | None = None
    error: str | None = None


class _Stopped(Exception):
    """Somebody asked the operation to stop."""


class Operations:
    """The bulk work of one process."""

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy
        self._all: dict[str, Operation] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping: set[str] = set()

    async def start(
        self, operator: JobActions, action: Action, selection: Selection, *, actor: str
    ) -> Operation:
        """Begin; the answer is its first state. Conflict while too many are running."""
        if len(self._tasks) >= AT_ONCE:
            raise Conflict(f"{AT_ONCE} bulk operations are running: wait for one, or stop it")
        expected, more = len(selection.ids), False
        if selection.filter is not None:
            counted = await operator.preview(action, selection.filter)
            expected, more = counted.jobs, counted.more
        now = self._clock.now()
        begun = Operation(
            id=new_ulid(now, self._entropy),
            action=action,
            actor=actor,
            state=OperationState.RUNNING,
            expected=expected,
            expected_more=more,
            begun_at=to_datetime(now),
        )
        # if this process ends before the work does, the audit still says that it began
        told = {"operation": begun.id, "expected": expected, "more": more}
        await operator.note(f"{action} begins", subject_of(selection), told)
        self._remember(begun)
        work = self._run(begun.id, operator, action, selection)
        self._tasks[begun.id] = asyncio.create_task(work, name=f"bulk {action} {begun.id}")
        return begun

    def get(self, operation_id: str) -> Operation:
        """One operation, or NotFound."""
        found = self._all.get(operation_id.upper())
        if found is None:
            raise NotFound(
                f"there is no operation {operation_id} in this process: what it did is in the audit"
            )
        return found

    def all(self) -> tuple[Operation, ...]:
        """All that are remembered, newest first."""
        return tuple(reversed(self._all.values()))

    @property
    def running(self) -> int:
        """How many go on now."""
        return len(self._tasks)

    def stop(self, operation_id: str) -> Operation:
        """Ask it to stop after its present step; what is done stays done."""
        found = self.get(operation_id)
        if found.state is OperationState.RUNNING:
            self._stopping.add(found.id)
        return found

    async def close(self) -> None:
        """Stop everything and wait for it."""
        self._stopping.update(self._tasks)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(
        self, operation_id: str, operator: JobActions, action: Action, selection: Selection
    ) -> None:
        def told(acted: Acted) -> None:
            self._note(operation_id, acted)
            if operation_id in self._stopping:
                raise _Stopped

        state, error = OperationState.DONE, None
        try:
            self._note(operation_id, await operator.perform(action, selection, progress=told))
        except _Stopped:
            state = OperationState.STOPPED
        except ForgeError as problem:
            state, error = OperationState.FAILED, redact.prose(str(problem))
        except Exception:
            _LOG.exception("a bulk operation failed")
            state, error = OperationState.FAILED, "an error inside Forge Jobs: see the log"
        finally:
            self._tasks.pop(operation_id, None)
            self._stopping.discard(operation_id)
        with contextlib.suppress(NotFound):
            ended = to_datetime(self._clock.now())
            was = self.get(operation_id)
            self._all[operation_id] = replace(was, state=state, ended_at=ended, error=error)

    def _note(self, operation_id: str, acted: Acted) -> None:
        with contextlib.suppress(NotFound):
            self._all[operation_id] = replace(
                self.get(operation_id),
                changed=acted.changed,
                requested=acted.requested,
                skipped=acted.skipped,
                missing=acted.missing,
            )

    def _remember(self, operation: Operation) -> None:
        self._all[operation.id] = operation
        for known in list(self._all.values()):
            if len(self._all) <= REMEMBERED:
                break
            if known.state is not OperationState.RUNNING:
                del self._all[known.id]
