"""Everything this process holds: claimed jobs, handlers that run, endings not yet written.

The floor starts, stops and concludes runs. It does not talk to the store (the pump does) and does
not decide how many slots there are (the supervisor does). Everything happens on the job loop,
except ``noted``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forge_jobs.config import EngineSettings
from forge_jobs.core.decide import Finish, done
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.job import Claim
from forge_jobs.core.status import Event
from forge_jobs.engine.claiming.finish_buffer import FinishBuffer
from forge_jobs.engine.claiming.local_queue import LocalQueue
from forge_jobs.engine.claiming.wake_signal import WakeSignal
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

_WRITTEN_HERE = 256
_WRITTEN_APART = 1_024


@dataclass(frozen=True, slots=True)
class InFlightParts:
    """What a floor is built from."""

    settings: EngineSettings
    clock: Clock
    entropy: Entropy
    standing: LeaseState
    journal: RunLog
    # Whether jobs run while the store writes: not where it would do so at their expense.
    overlap: bool = False


# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_RUNNING, _ENDED, _STALE = RunState.RUNNING, RunState.ENDED, Verdict.STALE
_MICRO = 1 / SECOND


class InFlightJobs:
    """The working state of one process. See the module's words."""

    def __init__(self, parts: InFlightParts, around: RunEnvironment, job_loop: JobLoop) -> None:
        settings, loop = parts.settings, job_loop.loop
        self.around = around
        self.lanes: dict[str, LocalQueue] = {}
        self.held: dict[int, Run] = {}
        self.bell = WakeSignal(loop)
        self.finish_buffer = FinishBuffer(
            self.bell,
            most=settings.max_unwritten or (_WRITTEN_APART if parts.overlap else _WRITTEN_HERE),
            span_s=settings.unwritten_s,
            mark_s=settings.prefetch_s,
            overlap=parts.overlap,
        )
        self.running = 0
        self.written = 0
        self.apart = parts.overlap and not settings.strict
        # Store time minus our own steady clock, by the last answer.
        self.skew_s = 0.0
        self.is_open = True
        self.store_now: Callable[[], Instant] = parts.clock.now
        self.mono = parts.clock.mono
        self.strict = settings.strict
        self.places = ExecutorSet(self, parts, job_loop)
        self.watch = Deadlines(self, loop)
        self.standing = parts.standing
        self.journal = parts.journal
        self._parts = parts
        self._job_loop = job_loop
        self._parked: dict[int, Finish] = {}
        self._turn = 0

    # -- starting -------------------------------------------------------------------------------

    def may_start(self, now: float) -> bool:
        """Whether a job may start: we are open, our lease holds, and endings get written."""
        return self.is_open and now < self.standing.trust_until and self.finish_buffer.has_room(now)

    def pour(self) -> None:
        """Start whatever may start, in all lanes."""
        now = self.mono()
        self._turn += 1
        for lane in self.in_turn(self._turn):
            if lane.ready:
                lane.pour(now)

    def in_turn(self, turn: int) -> list[LocalQueue]:
        """All lanes, with each turn another one first: it may use up a bound they share."""
        lanes = list(self.lanes.values())
        first = turn % len(lanes)
        return lanes[first:] + lanes[:first]

    def begin(self, run: Run, now: float) -> None:
        """A run starts."""
        run.state = _RUNNING
        run.started_at = now
        self.running += 1
        run.unit = self.strict
        job = run.job
        if not job.started:
            self.finish_buffer.mark(run, now)
        limit_s = run.handler.timeout_s if job.timeout_s is None else job.timeout_s
        if limit_s is not None:
            run.deadline = now + limit_s
            self.watch.arm(run.deadline)
        if job.limit_key is not None:
            self.watch.arm(self.standing.trust_until)

    def wants(self) -> None:
        """A slot goes idle: the pump may know what to do about it."""
        self.bell.notify()

    @property
    def is_fed(self) -> bool:
        """Whether there is work, and every lane that works has its next job at hand."""
        fed = False
        for lane in self.lanes.values():
            if lane.ready:
                fed = True
            elif lane.busy:
                return False
        return fed

    def call_slot(self, lane: LocalQueue) -> None:
        """A slot of the loop shall serve this lane."""
        self.places.loop.wake(lane)

    def pour_soon(self, lane: LocalQueue) -> None:
        """Serve the rest of the lane once the slot just called has had its turn."""
        if not lane.pouring:
            lane.pouring = True
            self._job_loop.loop.call_soon(lane.pour_all, self.mono())

    # -- ending ---------------------------------------------------------------------------------

    def done(self, run: Run, now: float) -> None:
        """The hot path: a success without result, notes or jobs to carry."""
        run.state = _ENDED
        self.running -= 1
        job = run.job
        ran_s = now - run.started_at
        pace = self.lanes[job.queue].pace
        pace.ended += 1
        pace.ran_s += ran_s
        waited_s = run.started_at + self.skew_s - job.run_at * _MICRO
        if waited_s < 0.0:
            waited_s = 0.0
        self.finish_buffer.add(done(job, result=None, ran_s=ran_s, waited_s=waited_s), now)

    def ended(self, run: Run, ending: RunOutcome) -> None:
        """An executor reports an ending; the run's unit becomes free."""
        now = self.mono()
        self.concluded(run, ending, run.ended_at or now)
        self.free_unit(run, now)

    def concluded(self, run: Run, ending: RunOutcome, at: float) -> None:
        """Record an ending; the unit is the caller's business."""
        self.running -= 1
        if run.state is RunState.LOST:
            return
        pace = self.lanes[run.job.queue].pace
        pace.ended += 1
        pace.ran_s += at - run.started_at
        self.conclude(run, ending, at)

    def free_unit(self, run: Run, now: float) -> None:
        """Let the next job of the lane have this run's place, at once or after the verdict."""
        if run.unit and run.state is RunState.ENDED:
            return
        lane = self.lanes[run.job.queue]
        lane.busy -= 1
        if lane.ready:
            lane.pour(now)
        else:
            self.bell.notify()

    def conclude(self, run: Run, ending: RunOutcome, at: float) -> None:
        """Record an ending of a run that may never have started."""
        parts, job = self._parts, run.job
        run.state = RunState.ENDED
        finish = finish_of(
            run,
            ending,
            now=self.store_now(),
            roll=parts.entropy.roll(),
            backoff=self.lanes[job.queue].backoff,
            budgets=parts.settings.budgets,
            ran_s=max(0.0, at - run.started_at),
            waited_s=max(0.0, run.started_at + self.skew_s - job.run_at * _MICRO),
        )
        if finish is None:
            self.finish_buffer.release(Claim(job.key, job.epoch))
            return
        if finish.event is not Event.DONE:
            self.journal.ended(run, finish)
            if finish.event is Event.THROTTLE:
                self._hand_back_throttled(job.queue, finish.scope)
        if run.notes is not None:
            self.finish_buffer.noted(run, at)
        if run.recording:
            self._parked[job.key] = finish
        else:
            self.finish_buffer.add(finish, at)

    def judged(self, finishes: list[Finish], verdicts: Sequence[Verdict]) -> None:
        """The store has judged endings."""
        held = self.held
        self.written += len(finishes)
        for finish, verdict in zip(finishes, verdicts, strict=True):
            run = held.get(finish.key)
            if verdict is _STALE:
                self.journal.stale(finish)
            # A later claim of the same job may have come in before this verdict.
            if run is not None and run.job.epoch == finish.epoch:
                del held[finish.key]
                if run.unit:
                    self.lanes[finish.queue].busy -= 1

    def handed_back(self, claims: list[Claim]) -> None:
        """The store has taken claims back."""
        for claim in claims:
            run = self.held.get(claim.key)
            if run is not None and run.job.epoch == claim.epoch:
                del self.held[claim.key]
                self.lanes[run.job.queue].busy -= run.unit

    # -- stopping -------------------------------------------------------------------------------

    def hand_back(self, run: Run) -> None:
        """A claim that never started goes back to the store."""
        run.state = RunState.ENDED
        self.finish_buffer.release(Claim(run.job.key, run.job.epoch))

    def _hand_back_throttled(self, queue: str, scope: str | None) -> None:
        """What was claimed ahead and would meet the same limiter goes back."""
        if scope is None:
            self.lanes[queue].hand_back_all()
            return
        for lane in self.lanes.values():
            lane.hand_back_of(scope)

    def hand_back_ready(self) -> None:
        """Everything that has not started goes back."""
        for lane in self.lanes.values():
            lane.hand_back_all()

    def interrupt(self, run: Run, stop: StopReason) -> None:
        """Tell a running handler to end. The first reason stays, but for losing the claim."""
        if run.state is not RunState.RUNNING:
            return
        if run.stop is None:
            run.stop = stop
        self.places.interrupt(run)

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
            self.lanes[run.job.queue].ready.remove(run)
            self.hand_back(run)
        elif run.stop is None:
            self.interrupt(run, StopReason.CANCEL)

    def cancel_here(self, run: Run) -> None:
        """Cancel at once; the ending waits until ``cancel_recorded``, so that the store knows of
        the request when it judges the ending."""
        run.recording = True
        if run.state is RunState.READY:
            self.lanes[run.job.queue].ready.remove(run)
            run.state = RunState.ENDED
        else:
            self.interrupt(run, StopReason.CANCEL)

    def cancel_recorded(self, run: Run) -> None:
        """The store knows of the cancel, or cannot be told: the ending may go."""
        run.recording = False
        if run.state is not RunState.ENDED:
            return
        finish = self._parked.pop(run.job.key, None)
        if finish is None:
            self.finish_buffer.release(Claim(run.job.key, run.job.epoch))
        else:
            self.finish_buffer.add(finish, self.mono())

    def lose_everything(self) -> None:
        """The store declared this process dead: its handlers end, nothing of it is written."""
        for lane in self.lanes.values():
            lane.ready.clear()
        for run in list(self.held.values()):
            if run.state is RunState.RUNNING:
                run.stop = StopReason.LOST
                run.unit = False
                self.places.interrupt(run)
                run.state = RunState.LOST
            elif run.unit:
                self.lanes[run.job.queue].busy -= 1
        self.held.clear()
        self._parked.clear()
        self.finish_buffer.clear()

    def noted(self, run: Run) -> None:
        """A handler said something; from any thread."""
        if self._job_loop.is_here:
            self.finish_buffer.noted(run, self.mono())
        else:
            self._job_loop.post(self.noted, run)
