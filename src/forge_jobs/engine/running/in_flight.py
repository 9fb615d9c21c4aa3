"""Everything this process holds: claimed jobs, handlers that run, endings not yet written.

The floor starts, stops and concludes runs. It does not talk to the store (the pump does) and does
not decide how many slots there are (the supervisor does). Everything happens on the job loop,
except ``noted``.
"""

from collections.abc import Sequence

from forge_jobs.config import EngineSettings
from forge_jobs.core.decide import Finish, done
from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import Claim
from forge_jobs.core.status import Event
from forge_jobs.engine.claiming.finish_buffer import FinishBuffer
from forge_jobs.engine.claiming.store_time import StoreTime
from forge_jobs.engine.liveness.lease_state import LeaseState
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.store.jobs import Verdict

from .context import RunEnvironment
from .deadlines import Deadlines
from .executor_set import ExecutorSet
from .job_loop import JobLoop
from .outcome import finish_of
from .run import Run, RunOutcome, RunState, StopReason
from .run_log import RunLog

# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_RUNNING, _ENDED, _STALE = RunState.RUNNING, RunState.ENDED, Verdict.STALE
_MICRO = 1 / SECOND


class InFlightJobs:
    """The claims of this process by key, from the claim to the verdict of the store."""

    def __init__(
        self,
        environment: RunEnvironment,
        finish_buffer: FinishBuffer,
        *,
        store_time: StoreTime,
        lease_state: LeaseState,
        run_log: RunLog,
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
        self._finish_buffer = finish_buffer
        self._store_time = store_time
        self._roll = entropy.roll
        self._budgets = settings.budgets
        self._job_loop = job_loop
        self._parked: dict[int, Finish] = {}

    # -- starting -------------------------------------------------------------------------------

    def begin(self, run: Run, now: float) -> None:
        """A run starts."""
        run.state = _RUNNING
        run.started_at = now
        self.running += 1
        run.unit = self.strict
        job = run.job
        if not job.started:
            self._finish_buffer.mark(run, now)
        limit_s = run.handler.timeout_s if job.timeout_s is None else job.timeout_s
        if limit_s is not None:
            run.deadline = now + limit_s
            self.deadlines.arm(run.deadline)
        if job.limit_key is not None:
            self.deadlines.arm(self.lease_state.trust_until)

    # -- ending ---------------------------------------------------------------------------------

    def done(self, run: Run, now: float) -> None:
        """The hot path: a success without result, notes or jobs to carry."""
        run.state = _ENDED
        self.running -= 1
        job = run.job
        ran_s = now - run.started_at
        pace = run.local_queue.pace
        pace.ended += 1
        pace.ran_s += ran_s
        waited_s = run.started_at + self._store_time.skew_s - job.run_at * _MICRO
        if waited_s < 0.0:
            waited_s = 0.0
        self._finish_buffer.add(done(job, result=None, ran_s=ran_s, waited_s=waited_s), now)

    def ended(self, run: Run, ending: RunOutcome) -> None:
        """An executor reports an ending; the run's unit becomes free."""
        now = self.mono()
        self.concluded(run, ending, run.ended_at or now)
        run.local_queue.free_unit(run, now)

    def concluded(self, run: Run, ending: RunOutcome, at: float) -> None:
        """Record an ending; the unit is the caller's business."""
        self.running -= 1
        if run.state is RunState.LOST:
            return
        pace = run.local_queue.pace
        pace.ended += 1
        pace.ran_s += at - run.started_at
        self.conclude(run, ending, at)

    def conclude(self, run: Run, ending: RunOutcome, at: float) -> None:
        """Record an ending of a run that may never have started."""
        job = run.job
        run.state = RunState.ENDED
        finish = finish_of(
            run,
            ending,
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
            self.run_log.ended(run, finish)
            if finish.event is Event.THROTTLE:
                run.local_queue.hand_back_throttled(finish.scope)
        if run.notes is not None:
            self._finish_buffer.noted(run, at)
        if run.recording:
            self._parked[job.key] = finish
        else:
            self._finish_buffer.add(finish, at)

    def judged(self, finishes: list[Finish], verdicts: Sequence[Verdict]) -> None:
        """The store has judged endings."""
        held = self.held
        self.written += len(finishes)
        for finish, verdict in zip(finishes, verdicts, strict=True):
            run = held.get(finish.key)
            if verdict is _STALE:
                self.run_log.stale(finish)
            # A later claim of the same job may have come in before this verdict.
            if run is not None and run.job.epoch == finish.epoch:
                del held[finish.key]
                if run.unit:
                    run.local_queue.busy -= 1

    def handed_back(self, claims: list[Claim]) -> None:
        """The store has taken claims back."""
        for claim in claims:
            run = self.held.get(claim.key)
            if run is not None and run.job.epoch == claim.epoch:
                del self.held[claim.key]
                run.local_queue.busy -= run.unit

    # -- stopping -------------------------------------------------------------------------------

    def interrupt(self, run: Run, stop: StopReason) -> None:
        """Tell a running handler to end. The first reason stays, but for losing the claim."""
        if run.state is not RunState.RUNNING:
            return
        if run.stop is None:
            run.stop = stop
        self.executors.interrupt(run)

    def interrupt_all(self, stop: StopReason) -> None:
        """Tell every running handler to end."""
        for run in list(self.held.values()):
            self.interrupt(run, stop)

    def cancel(self, key: int) -> None:
        """A person wants this job to end."""
        run = self.held.get(key)
        if run is None:
            return
        if run.state is RunState.READY:
            run.local_queue.remove(run)
            self._finish_buffer.release(Claim(run.job.key, run.job.epoch))
        elif run.stop is None:
            self.interrupt(run, StopReason.CANCEL)

    def cancel_here(self, run: Run) -> None:
        """Cancel at once; the ending waits until ``cancel_recorded``, so that the store knows of
        the request when it judges the ending."""
        run.recording = True
        if run.state is RunState.READY:
            run.local_queue.remove(run)
        else:
            self.interrupt(run, StopReason.CANCEL)

    def cancel_recorded(self, run: Run) -> None:
        """The store knows of the cancel, or cannot be told: the ending may go."""
        run.recording = False
        if run.state is not RunState.ENDED:
            return
        finish = self._parked.pop(run.job.key, None)
        if finish is None:
            self._finish_buffer.release(Claim(run.job.key, run.job.epoch))
        else:
            self._finish_buffer.add(finish, self.mono())

    def lose_all(self) -> None:
        """The store declared this process dead: its handlers end, nothing of it is written."""
        for run in list(self.held.values()):
            if run.state is RunState.RUNNING:
                run.stop = StopReason.LOST
                run.unit = False
                self.executors.interrupt(run)
                run.state = RunState.LOST
            elif run.unit:
                run.local_queue.busy -= 1
        self.held.clear()
        self._parked.clear()

    def noted(self, run: Run) -> None:
        """A handler said something; from any thread."""
        if self._job_loop.is_here:
            self._finish_buffer.noted(run, self.mono())
        else:
            self._job_loop.post(self.noted, run)
