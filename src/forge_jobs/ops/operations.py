"""Bulk operations: actions on many jobs that run in the background and can be stopped.

An operation belongs to the process that runs it, which keeps the last hundred in memory. The audit
gets an entry when an operation begins and one when it ends, also when it was stopped. A begin entry
without an end entry means that the process died; the same filter shows the jobs that are left.
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

from .actions import Action, JobActions, audit_subject
from .views import View

MAX_REMEMBERED: Final = 100
MAX_RUNNING: Final = 8

_LOG = logging.getLogger(__name__)


class OperationState(StrEnum):
    """The state of an operation."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class Operation(View, frozen=True, kw_only=True):
    """One action on many jobs. ``expected`` is counted before the start, up to 10,000."""

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


class _StopRequested(Exception):
    """Raised between two batches after ``stop``."""


class Operations:
    """The bulk operations of one process."""

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy
        self._operations: dict[str, Operation] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping: set[str] = set()

    async def start(
        self, actions: JobActions, action: Action, selection: Selection, *, actor: str
    ) -> Operation:
        """Start an operation and return its first state. Conflict while eight are running."""
        if len(self._tasks) >= MAX_RUNNING:
            raise Conflict(f"{MAX_RUNNING} bulk operations are running: wait for one, or stop it")
        expected, more = len(selection.ids), False
        if selection.filter is not None:
            preview = await actions.preview(action, selection.filter)
            expected, more = preview.jobs, preview.more
        now = self._clock.now()
        operation = Operation(
            id=new_ulid(now, self._entropy),
            action=action,
            actor=actor,
            state=OperationState.RUNNING,
            expected=expected,
            expected_more=more,
            begun_at=to_datetime(now),
        )
        # if this process dies, the audit still shows that the operation began
        detail = {"operation": operation.id, "expected": expected, "more": more}
        await actions.record_action(f"{action} begins", audit_subject(selection), detail)
        self._remember(operation)
        run = self._run(operation.id, actions, action, selection)
        self._tasks[operation.id] = asyncio.create_task(run, name=f"bulk {action} {operation.id}")
        return operation

    def get(self, operation_id: str) -> Operation:
        """One operation, or NotFound."""
        operation = self._operations.get(operation_id.upper())
        if operation is None:
            raise NotFound(
                f"there is no operation {operation_id} in this process: what it did is in the audit"
            )
        return operation

    def all(self) -> tuple[Operation, ...]:
        """The last operations, newest first."""
        return tuple(reversed(self._operations.values()))

    @property
    def running(self) -> int:
        """How many are running."""
        return len(self._tasks)

    def stop(self, operation_id: str) -> Operation:
        """Stop the operation after its current batch; committed batches are not undone."""
        operation = self.get(operation_id)
        if operation.state is OperationState.RUNNING:
            self._stopping.add(operation.id)
        return operation

    async def close(self) -> None:
        """Stop all operations and wait for them."""
        self._stopping.update(self._tasks)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(
        self, operation_id: str, actions: JobActions, action: Action, selection: Selection
    ) -> None:
        def on_progress(acted: Acted) -> None:
            self._update_counts(operation_id, acted)
            if operation_id in self._stopping:
                raise _StopRequested

        state, error = OperationState.DONE, None
        try:
            self._update_counts(
                operation_id, await actions.perform(action, selection, progress=on_progress)
            )
        except _StopRequested:
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
            ended_at = to_datetime(self._clock.now())
            self._operations[operation_id] = replace(
                self.get(operation_id), state=state, ended_at=ended_at, error=error
            )

    def _update_counts(self, operation_id: str, acted: Acted) -> None:
        with contextlib.suppress(NotFound):
            self._operations[operation_id] = replace(
                self.get(operation_id),
                changed=acted.changed,
                requested=acted.requested,
                skipped=acted.skipped,
                missing=acted.missing,
            )

    def _remember(self, operation: Operation) -> None:
        self._operations[operation.id] = operation
        for remembered in list(self._operations.values()):
            if len(self._operations) <= MAX_REMEMBERED:
                break
            if remembered.state is not OperationState.RUNNING:
                del self._operations[remembered.id]
