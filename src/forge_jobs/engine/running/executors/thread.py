"""Runs ``def`` handlers in our own daemon threads, fed from one deque.

Not ``concurrent.futures``, which joins its threads at exit and so would wait for a handler that
never ends. Threads are started when they are needed. A thread that finds more work wakes one other
before it calls its handler: handlers that never block all run in one thread, blocking ones get a
thread each. Outcomes go back to the loop in batches, one wake-up for as many as have gathered.
"""

import contextvars
import threading
from collections import deque
from collections.abc import Callable

from forge_jobs.engine.running.job_loop import JobLoop
from forge_jobs.engine.running.outcome import outcome_of_error, outcome_of_value
from forge_jobs.engine.running.run import OnRunFinish, Run, RunOutcome
from forge_jobs.kit.log import field_source


class _CurrentRun:
    """The run of one thread: the source of the fields of what its handler logs."""

    __slots__ = ("run",)

    def __init__(self) -> None:
        self.run: Run | None = None

    def log_fields(self) -> dict[str, object] | None:
        return None if self.run is None else self.run.log_fields()


class ThreadExecutor:
    """Runs handlers in threads. A thread cannot be ended from outside."""

    def __init__(
        self, on_finish: OnRunFinish, *, mono: Callable[[], float], job_loop: JobLoop
    ) -> None:
        self._on_finish = on_finish
        self._mono = mono
        self._job_loop = job_loop
        self._inbox: deque[Run] = deque()
        self._finished: deque[tuple[Run, RunOutcome]] = deque()
        self._guard = threading.Lock()
        self._idle: list[threading.Lock] = []
        self._threads = 0
        self._waking = False
        self._reporting = False
        self._closed = False

    def submit(self, run: Run) -> None:
        """Queue a run for the next free thread."""
        self._inbox.append(run)
        if not self._waking:
            self._wake_one()

    def interrupt(self, run: Run) -> None:
        """No effect: the handler reads ``ctx.cancelled``; until it ends the job stays running."""

    async def close(self) -> None:
        """End idle threads; busy ones are daemons and end with their handler or the process."""
        self._closed = True
        self._inbox.clear()
        with self._guard:
            idle, self._idle = self._idle, []
        for sleeper in idle:
            sleeper.release()

    def _wake_one(self) -> None:
        with self._guard:
            if self._waking or not self._inbox:
                return
            self._waking = True
            if self._idle:
                self._idle.pop().release()
                return
            self._threads += 1
            number = self._threads
        threading.Thread(target=self._run_thread, name=f"forge-job-{number}", daemon=True).start()

    def _run_thread(self) -> None:
        # A fresh context when a handler has set context variables: the next must not see them.
        self._waking = False
        while contextvars.Context().run(self._serve):
            pass

    def _serve(self) -> bool:
        sleeper = threading.Lock()
        sleeper.acquire()
        current = _CurrentRun()
        field_source.set(current)
        clean = contextvars.copy_context()
        inbox, mono = self._inbox, self._mono
        while True:
            try:
                run = inbox.popleft()
            except IndexError:
                if not self._sleep(sleeper):
                    return False
                continue
            if inbox and not self._waking:
                self._wake_one()
            current.run = run
            run.started_at = mono()
            self._report(run, _call(run))
            if self._closed:
                return False
            if contextvars.copy_context() != clean:
                return True

    def _sleep(self, sleeper: threading.Lock) -> bool:
        with self._guard:
            if self._closed:
                return False
            if self._inbox:
                return True
            self._idle.append(sleeper)
        sleeper.acquire()
        self._waking = False
        return not self._closed

    def _report(self, run: Run, run_outcome: RunOutcome) -> None:
        run.finished_at = self._mono()
        self._finished.append((run, run_outcome))
        if not self._reporting:
            self._reporting = True
            self._job_loop.post(self._deliver)

    def _deliver(self) -> None:
        self._reporting = False
        finished, on_finish = self._finished, self._on_finish
        while finished:
            run, run_outcome = finished.popleft()
            if not self._closed:
                on_finish(run, run_outcome)


def _call(run: Run) -> RunOutcome:
    handler = run.handler
    try:
        return outcome_of_value(handler, handler.call(run.job.payload, run.make_context))
    except BaseException as error:
        return outcome_of_error(handler, error)
