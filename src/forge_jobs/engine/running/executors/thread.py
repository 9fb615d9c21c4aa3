"""``def`` handlers: our own daemon threads, fed from one deque.

Not ``concurrent.futures``, which joins its threads at exit and so would wait for a handler that
never ends. Threads are started when they are needed. A thread that finds more work wakes one other
before it calls its handler: handlers that never block are all run by one thread, blocking ones get
a thread each. Endings go back to the loop in batches, one wake-up for as many as have gathered.
"""

import contextvars
import threading
from collections import deque
from collections.abc import Callable

from forge_jobs.engine.running.job_loop import JobLoop
from forge_jobs.engine.running.outcome import outcome_of_error, outcome_of_value
from forge_jobs.engine.running.run import OnRunEnd, Run, RunOutcome


class ThreadExecutor:
    """Runs handlers in threads. ``interrupt`` can only tell them; it cannot end them."""

    def __init__(self, ended: OnRunEnd, *, mono: Callable[[], float], job_loop: JobLoop) -> None:
        self._ended = ended
        self._mono = mono
        self._job_loop = job_loop
        self._inbox: deque[Run] = deque()
        self._finish_buffer: deque[tuple[Run, RunOutcome]] = deque()
        self._guard = threading.Lock()
        self._idle: list[threading.Lock] = []
        self._threads = 0
        self._waking = False
        self._reporting = False
        self._closed = False

    def submit(self, run: Run) -> None:
        """Put a run in; a thread comes for it."""
        self._inbox.append(run)
        if not self._waking:
            self._wake_one()

    def interrupt(self, run: Run) -> None:
        """Nothing ends a thread: the handler reads ``ctx.cancelled``, the row stays running."""

    async def close(self) -> None:
        """Let idle threads end; busy ones are daemons and end with their handler or the process."""
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
        threading.Thread(target=self._live, name=f"forge-job-{number}", daemon=True).start()

    def _live(self) -> None:
        # What one handler leaves in context variables must not reach the next.
        self._waking = False
        while contextvars.Context().run(self._serve):
            pass

    def _serve(self) -> bool:
        sleeper = threading.Lock()
        sleeper.acquire()
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

    def _report(self, run: Run, ending: RunOutcome) -> None:
        run.ended_at = self._mono()
        self._finish_buffer.append((run, ending))
        if not self._reporting:
            self._reporting = True
            self._job_loop.post(self._deliver)

    def _deliver(self) -> None:
        self._reporting = False
        finish_buffer, ended = self._finish_buffer, self._ended
        while finish_buffer:
            run, ending = finish_buffer.popleft()
            if not self._closed:
                ended(run, ending)


def _call(run: Run) -> RunOutcome:
    handler = run.handler
    try:
        return outcome_of_value(handler, handler.call(run.job.payload, run.make_context))
    except BaseException as error:
        return outcome_of_error(handler, error)
