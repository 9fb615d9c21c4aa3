"""The claims this process holds: waiting for a slot, running, or finished and unwritten.

Begins, finishes, interrupts and cancels runs. Does not call the store (the exchange loop does) and
does not decide what may start (the local queues do). Everything happens on the job loop, except
``add_notes``.
"""

import asyncio
from collections.abc import Callable, Sequence

from forge_jobs.config import EngineSettings
from forge_jobs.core.decide import Finish, done
from forge_jobs.core.errors import ForgeError
from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import Claim
from forge_jobs.core.outcome import Dead, Failed, Missing
from forge_jobs.core.status import Event
from forge_jobs.engine.claiming.finish_buffer import FinishBuffer
from forge_jobs.engine.claiming.step_buffer import StepBuffer
from forge_jobs.engine.claiming.store_time import StoreTime
from forge_jobs.engine.liveness.lease_state import LeaseState
from forge_jobs.engine.steps.run_steps import RunSteps, StepEnvironment
from forge_jobs.engine.steps.step_outcome import (
    has_unread_cursors,
    outcome_with_steps,
    with_all_cursors,
)
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.store.jobs import Verdict
from forge_jobs.store.store import Store

from .context import RunEnvironment
from .deadlines import Deadlines
from .executor_set import ExecutorSet
from .handover import Handover
from .job_loop import JobLoop
from .outcome import finish_of
from .registry import HandlerRegistry
from .run import Run, RunOutcome, RunState, StopReason
from .run_log import RunLog

# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_RUNNING, _FINISHED, _STALE = RunState.RUNNING, RunState.FINISHED, Verdict.STALE
_MICRO = 1 / SECOND


class InFlightJobs:
    """All claims by job key (``held``), from the claim to the verdict of the store.

    ``running`` counts handlers that run, ``written`` finishes that the store has answered.
    """

    def __init__(
        self,
        environment: RunEnvironment,
        finish_buffer: FinishBuffer,
        step_buffer: StepBuffer,
        *,
        store_time: StoreTime,
        lease_state: LeaseState,
        run_log: RunLog,
        handlers: HandlerRegistry,
        store: Store,
        owner: Callable[[], int],
        settings: EngineSettings,
        clock: Clock,
        entropy: Entropy,
        job_loop: JobLoop,
    ) -> None:
        self.environment = environment
        self.held: dict[int, Run] = {}
        self.running = 0
        self.written = 0
        self.lease_state = lease_state
        self.run_log = run_log
        self.mono = clock.mono
        self.strict = settings.strict
        self.executors = ExecutorSet(
            self, settings=settings, clock=clock, entropy=entropy, job_loop=job_loop
        )
        self.deadlines = Deadlines(self, job_loop.loop)
        self.handover = Handover(
            self, handlers, store, owner=owner, clock=clock, loop=job_loop.loop
        )
        self.steps = StepEnvironment(
            step_buffer, store, store_time, owner, job_loop, clock, self._lose
        )
        self._finish_buffer = finish_buffer
        self._store_time = store_time
        self._roll = entropy.roll
        self._budgets = settings.budgets
        self._job_loop = job_loop
        self._awaiting_record: dict[int, Finish] = {}
        self._awaiting_commit: set[asyncio.Task[None]] = set()
        self._closed = False

    # -- starting -------------------------------------------------------------------------------

    def begin(self, run: Run, now: float) -> None:
        """Mark a run as running and arm its deadline."""
        run.state = _RUNNING
        run.started_at = now
        self.running += 1
        run.keeps_slot = self.strict
        job = run.job
        if not job.started:
            self._finish_buffer.mark_started(run, now)
        limit_s = job.timeout_s
        if limit_s is None and (limit_s := run.handler.timeout_s) is not None:
            limit_s = run.timeout_s
        if limit_s is not None:
            run.deadline = now + limit_s
            self.deadlines.arm(run.deadline)
        if job.limit_key is not None:
            self.deadlines.arm(self.lease_state.trust_until)

    # -- finishing ------------------------------------------------------------------------------

    def done(self, run: Run, now: float) -> None:
        """Finish a success without result, notes or successors: the hot path."""
        run.state = _FINISHED
        self.running -= 1
        job = run.job
        ran_s = now - run.started_at
        prefetch = run.local_queue.prefetch
        prefetch.finished += 1
        prefetch.ran_s += ran_s
        waited_s = run.started_at + self._store_time.skew_s - job.run_at * _MICRO
        if waited_s < 0.0:
            waited_s = 0.0
        self._finish_buffer.add(done(job, result=None, ran_s=ran_s, waited_s=waited_s), now)

    def finish_and_free_slot(self, run: Run, run_outcome: RunOutcome) -> None:
        """Finish a run that a thread or child process has ended, and free its slot."""
        now = self.mono()
        self.finish_started(run, run_outcome, run.finished_at or now)
        run.local_queue.free_slot(run, now)

    def finish_started(self, run: Run, run_outcome: RunOutcome, at: float) -> None:
        """Finish a run that had started. The caller frees its slot."""
        self.running -= 1
        if run.state is RunState.LOST:
            return
        prefetch = run.local_queue.prefetch
        prefetch.finished += 1
        prefetch.ran_s += at - run.started_at
        if run.steps is not None:
            run_outcome = outcome_with_steps(run, run_outcome)
            if isinstance(run.steps, RunSteps) and (
                run.steps.uncommitted or has_unread_cursors(run.steps, run_outcome)
            ):
                self._finish_after_commit(run, run.steps, run_outcome, at)
                return
        self.finish(run, run_outcome, at)

    def _finish_after_commit(
        self, run: Run, steps: RunSteps, run_outcome: RunOutcome, at: float
    ) -> None:
        """Finish once the user's transaction has ended: until then it locks the job; and once all
        events that a restart keeps were read."""
        run.state = RunState.COMMITTING
        if self._closed:
            return

        async def wait_and_finish() -> None:
            outcome = run_outcome
            try:
                await steps.check_committed()
                outcome = await with_all_cursors(steps, outcome)
            except ForgeError as error:
                # A commit may still be under way: the next run must look.
                steps.assume_stored()
                if not isinstance(outcome.outcome, Failed | Dead):
                    outcome = RunOutcome(Failed(str(error)))
            if run.state is not RunState.LOST:
                self.finish(run, outcome, at)

        task = self._job_loop.loop.create_task(wait_and_finish(), name="forge-await-commit")
        self._awaiting_commit.add(task)
        task.add_done_callback(self._awaiting_commit.discard)

    def finish(self, run: Run, run_outcome: RunOutcome, at: float) -> None:
        """Put the write of an outcome into the finish buffer; the run may never have started."""
        job = run.job
        run.state = RunState.FINISHED
        finish = finish_of(
            run,
            run_outcome,
            now=self._store_time.now(),
            roll=self._roll(),
            backoff=run.local_queue.backoff,
            budgets=self._budgets,
            ran_s=max(0.0, at - run.started_at),
            waited_s=max(0.0, run.started_at + self._store_time.skew_s - job.run_at * _MICRO),
        )
        if finish is None:
            self._finish_buffer.release(Claim(job.key, job.epoch))
            return
        if finish.event is not Event.DONE:
            outcome = run_outcome.outcome
            if isinstance(outcome, Missing) and self.handover.refused(run, outcome, finish, at):
                return
            self.run_log.finished(run, finish)
            if finish.event is Event.THROTTLE:
                run.local_queue.release_throttled(finish.scope)
        if run.notes is not None:
            self._finish_buffer.add_notes(run, at)
        if run.recording_cancel:
            self._awaiting_record[job.key] = finish
        else:
            self._finish_buffer.add(finish, at)

    def apply_verdicts(self, finishes: list[Finish], verdicts: Sequence[Verdict]) -> None:
        """Drop the claims whose finish the store has answered."""
        held = self.held
        self.written += len(finishes)
        for finish, verdict in zip(finishes, verdicts, strict=True):
            run = held.get(finish.key)
            if verdict is _STALE:
                self.run_log.stale(finish)
            # A later claim of the same job may have arrived before this verdict.
            if run is not None and run.job.epoch == finish.epoch:
                del held[finish.key]
                if run.keeps_slot:
                    run.local_queue.busy -= 1

    def apply_releases(self, claims: list[Claim]) -> None:
        """Drop the claims that the store has released."""
        for claim in claims:
            run = self.held.get(claim.key)
            if run is not None and run.job.epoch == claim.epoch:
                del self.held[claim.key]
                run.local_queue.busy -= run.keeps_slot

    # -- stopping -------------------------------------------------------------------------------

    @property
    def is_written(self) -> bool:
        """Whether no finish waits: for an exchange, or for the end of a user's transaction."""
        return self._finish_buffer.is_empty and not self._awaiting_commit

    def close(self) -> "list[asyncio.Task[None]]":
        """Cancel what still waits; its claims are released when the process deregisters, or
        reaped."""
        self._closed = True
        self.deadlines.close()
        for task in self._awaiting_commit:
            task.cancel()
        return [*self.handover.close(), *self._awaiting_commit]

    def interrupt(self, run: Run, stop: StopReason) -> None:
        """Tell a running handler to end. The first reason stays."""
        if run.state is not RunState.RUNNING:
            return
        if run.stop is None:
            run.stop = stop
        self.executors.interrupt(run)

    def _lose(self, run: Run) -> None:
        """The store says that this run's claim is gone."""
        self.interrupt(run, StopReason.LOST)

    def interrupt_all(self, stop: StopReason) -> None:
        """Tell every running handler to end."""
        for run in list(self.held.values()):
            self.interrupt(run, stop)

    def cancel(self, key: int) -> None:
        """Cancel a held job, as requested in the store."""
        run = self.held.get(key)
        if run is None:
            return
        if run.state is RunState.READY:
            run.local_queue.remove(run)
            self._finish_buffer.release(Claim(run.job.key, run.job.epoch))
        elif run.stop is None:
            self.interrupt(run, StopReason.CANCEL)

    def cancel_locally(self, run: Run) -> None:
        """Cancel at once. The finish is written after ``cancel_recorded``, so that the store knows
        of the request before it applies the finish."""
        run.recording_cancel = True
        if run.state is RunState.READY:
            run.local_queue.remove(run)
        else:
            self.interrupt(run, StopReason.CANCEL)

    def cancel_recorded(self, run: Run) -> None:
        """The request is in the store, or could not be written: write the finish now."""
        run.recording_cancel = False
        if run.state is not RunState.FINISHED:
            return
        finish = self._awaiting_record.pop(run.job.key, None)
        if finish is None:
            self._finish_buffer.release(Claim(run.job.key, run.job.epoch))
        else:
            self._finish_buffer.add(finish, self.mono())

    def lose_all(self) -> None:
        """Drop all claims after the store declared this process dead; handlers are told to end."""
        for run in list(self.held.values()):
            if run.state is RunState.RUNNING:
                run.stop = StopReason.LOST
                run.keeps_slot = False
                self.executors.interrupt(run)
                run.state = RunState.LOST
                continue
            if run.state is RunState.COMMITTING:
                run.state = RunState.LOST
            run.local_queue.busy -= run.keeps_slot
        self.held.clear()
        self._awaiting_record.clear()

    def add_notes(self, run: Run) -> None:
        """Write new notes of this run with the next exchange. May be called from any thread."""
        if self._job_loop.is_here:
            self._finish_buffer.add_notes(run, self.mono())
        else:
            self._job_loop.post(self.add_notes, run)
