"""What becomes of a job that this process cannot run, but a worker of another version may.

A refusal reads what the living processes have published about the kind, at most every two seconds
per kind. Only then is it known whether the job waits, for how long, or is dead (``core.decide``).
While a worker lives that may take it, this process leaves the kind to others for a moment, and
wakes them when the job is due again. Jobs that fit never come here.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from forge_jobs.core.decide import Finish
from forge_jobs.core.outcome import Missing
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.clock import Clock
from forge_jobs.store.processes import ProcessSignature
from forge_jobs.store.store import Store

from .registry import HandlerRegistry
from .run import Run, RunOutcome

if TYPE_CHECKING:
    from .in_flight import InFlightJobs

_LOG = logging.getLogger("forge_jobs.engine")
_FRESH_S: Final = 2.0
# A kind without a handler can only be refused here. One whose arguments did not fit may come with
# others that do, so that it is left to others for less time.
_UNKNOWN_KIND_S: Final = 5.0
_OTHER_VERSION_S: Final = 2.0
_MAX_PROMOTED: Final = 500
_LATE_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class _Published:
    """What the store said about a kind, in an answer to a question of ``asked_at``."""

    asked_at: float
    found: list[ProcessSignature]


@dataclass(frozen=True, slots=True)
class _RefusedRun:
    """A refused run. ``final``: the job is dead unless it can run elsewhere."""

    run: Run
    outcome: Missing
    at: float
    final: bool


class Handover:
    """The refused jobs whose finish waits for an answer of the store."""

    def __init__(
        self,
        in_flight: "InFlightJobs",
        handlers: HandlerRegistry,
        store: Store,
        *,
        owner: Callable[[], int],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._in_flight = in_flight
        self._handlers = handlers
        self._store = store
        self._owner = owner
        self._mono = clock.mono
        self._loop = loop
        self._published: dict[str, _Published] = {}
        self._waiting: dict[str, list[_RefusedRun]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def refused(self, run: Run, outcome: Missing, finish: Finish, at: float) -> bool:
        """Whether this finish must wait. If so, the run is finished again once ``elsewhere`` is
        known."""
        if outcome.elsewhere is None:
            self._resolve(_RefusedRun(run, outcome, at, finish.status is JobStatus.DEAD))
            return True
        if outcome.elsewhere and finish.status is JobStatus.SCHEDULED:
            span_s = _OTHER_VERSION_S if outcome.message else _UNKNOWN_KIND_S
            run.local_queue.leave_to_others(run.job.kind, self._mono(), span_s)
            if self._timer is None:
                due_s = (finish.delay_s or 0.0) + _LATE_S
                self._timer = self._loop.call_later(due_s, self._wake_others)
        return False

    def close(self) -> "list[asyncio.Task[None]]":
        """Cancel what runs; the store releases the claims when the process deregisters."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        return tasks

    def _resolve(self, refused_run: _RefusedRun) -> None:
        kind = refused_run.run.job.kind
        published = self._published.get(kind)
        if published is not None and self._mono() - published.asked_at < _FRESH_S:
            elsewhere = self._is_elsewhere(refused_run, published.found)
            # A worker may have started since: nothing dies by an answer older than its claim.
            if (
                elsewhere
                or not refused_run.final
                or published.asked_at >= refused_run.run.claimed_at
            ):
                self._finish(refused_run, elsewhere=elsewhere)
                return
        waiting = self._waiting.get(kind)
        if waiting is not None:
            waiting.append(refused_run)
            return
        self._waiting[kind] = [refused_run]
        self._start(self._read(kind))

    async def _read(self, kind: str) -> None:
        asked_at = self._mono()
        try:
            found = await self._store.processes.signatures(kind)
        except Exception as error:
            # Nothing dies for lack of an answer.
            _LOG.debug("cannot read published signatures", extra={"error": repr(error)})
            for refused_run in self._waiting.pop(kind, ()):
                self._finish(refused_run, elsewhere=True)
            return
        self._published[kind] = _Published(asked_at, found)
        for refused_run in self._waiting.pop(kind, ()):
            self._resolve(refused_run)

    def _finish(self, refused_run: _RefusedRun, *, elsewhere: bool) -> None:
        run, outcome = refused_run.run, refused_run.outcome
        # The claim may be lost meanwhile.
        if self._in_flight.held.get(run.job.key) is run:
            known = Missing(
                outcome.message,
                names=outcome.names,
                by_value=outcome.by_value,
                elsewhere=elsewhere,
            )
            self._in_flight.finish(run, RunOutcome(known), refused_run.at)

    def _is_elsewhere(self, refused_run: _RefusedRun, found: list[ProcessSignature]) -> bool:
        job, outcome, owner = refused_run.run.job, refused_run.outcome, self._owner()
        unlike = None
        if outcome.by_value and self._handlers.get(job.kind) is not None:
            unlike = self._handlers.signature(job.kind)
        return any(
            job.queue in each.queues
            and each.key != owner
            and (not outcome.message or each.signature.may_take(outcome.names, unlike=unlike))
            for each in found
        )

    def _wake_others(self) -> None:
        # A job that comes due notifies nobody: idle workers would find it with their next poll.
        self._timer = None
        self._start(self._promote())

    async def _promote(self) -> None:
        try:
            await self._store.jobs.promote(limit=_MAX_PROMOTED)
        except Exception as error:
            _LOG.debug("cannot promote refused jobs", extra={"error": repr(error)})

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name="forge-handover")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
