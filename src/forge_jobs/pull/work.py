"""The worker loop of a pull queue, and the pool of loops: dequeue, call the handler, finish."""

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from forge_jobs.core import payload
from forge_jobs.core.decide import Finish
from forge_jobs.core.errors import BadOption, Conflict, ForgeError, NotFound, StoreError
from forge_jobs.core.instant import Duration, seconds
from forge_jobs.core.job import ClaimedJob
from forge_jobs.core.outcome import Dead, Done, Failed, JobOutcome, Snooze, Throttled
from forge_jobs.engine.running.error_text import error_text, storable
from forge_jobs.engine.running.run_log import job_message
from forge_jobs.kit import redact
from forge_jobs.kit.log import IN_MESSAGE, log_facts, log_with_traceback
from forge_jobs.kit.thread_result import ThreadResult
from forge_jobs.kit.traceback_text import traceback_text
from forge_jobs.store.store import Subscription

from .heartbeats import Heartbeats
from .job import Job
from .requests import lease_seconds, type_names

if TYPE_CHECKING:
    from .queue import JobQueue

Handler = Callable[[Job], Any]
DEFAULT_POLL: Final = "1s"
_LOG: Final = logging.getLogger("forge_jobs.pull")
_POLL_S: Final = 1.0
# A wait ends by the caller's event or by a notification, but a thread can wait for one event only:
# it waits in slices.
_WAIT_SLICE_S: Final = 0.05
_RETRY_S: Final = (0.1, 0.5, 1.0, 2.0)
_MAX_WORKERS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """The checked arguments of ``work`` and ``work_pool``."""

    queue: "JobQueue"
    handler: Handler
    kinds: tuple[str, ...]
    poll_s: float
    stop: threading.Event
    lease_s: float
    timeout_s: float | None

    @classmethod
    def checked(
        cls,
        queue: "JobQueue",
        handler: Handler,
        types: Sequence[str] | None,
        poll: Duration,
        stop: threading.Event | None,
        lease: Duration,
        timeout: Duration | None,
    ) -> "WorkOptions":
        """The options, or BadOption that names the argument, before anything is started."""
        if not callable(handler):
            raise BadOption(f"handler={handler!r} cannot be called: pass a function of one Job")
        if stop is not None and not isinstance(stop, threading.Event):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadOption(f"stop={stop!r} is no flag: pass a threading.Event")
        too_small = isinstance(poll, int | float) and poll <= 0
        return cls(
            queue=queue,
            handler=handler,
            kinds=type_names(types),
            poll_s=_POLL_S if too_small else seconds(poll, field="poll") or _POLL_S,
            stop=stop or threading.Event(),
            lease_s=lease_seconds(lease),
            timeout_s=None if timeout is None else seconds(timeout, field="timeout"),
        )


class WorkLoop:
    """One worker: runs one job at a time on the calling thread."""

    def __init__(self, options: WorkOptions, stop_all: threading.Event | None = None) -> None:
        self._options = options
        self._queue = options.queue
        self._pool_stop = stop_all or threading.Event()
        self._wake = threading.Event()
        self._heartbeats = Heartbeats(
            options.queue.held,
            options.queue.access.ready(),
            clock=options.queue.clock,
            entropy=options.queue.entropy,
            lease_s=options.lease_s,
            timeout_s=options.timeout_s,
        )
        self._runner: asyncio.Runner | None = None
        # The job that the finish of the last one claimed.
        self._next_job: Job | None = None

    def run(self) -> int:
        """Work until ``stop`` is set; returns how many jobs were handled."""
        access, handled = self._queue.access, 0
        subscription: Subscription | None = None
        beating: ThreadResult[None] | None = None
        job: Job | None = None
        try:
            subscription = access.run(
                lambda store: store.subscribe([self._queue.name], self._wake.set)
            )
            beating = access.start(self._heartbeats.run)
            while not self._stopping():
                job = job or self._next()
                if job is not None:
                    handled, job = handled + 1, self._run_job(job)
            if job is not None:
                # It was claimed with the finish of the last one and has not started.
                self._queue.release(job)
            return handled
        except BaseException:
            self._release_held(job)
            raise
        finally:
            if beating is not None:
                beating.cancel()
            if self._runner is not None:
                self._runner.close()
            if subscription is not None:
                self._unsubscribe(subscription)

    def _release_held(self, job: Job | None) -> None:
        """Release what is held after an interrupt; no effect on a job that was finished before."""
        for held in (job, self._next_job):
            if held is not None:
                # If the store cannot be reached, the lease ends by itself.
                with contextlib.suppress(ForgeError):
                    self._queue.release(held)

    def _unsubscribe(self, subscription: Subscription) -> None:
        # If the store cannot be reached, the subscription is gone with it.
        try:
            self._queue.access.run(lambda _: subscription.close())
        except ForgeError as error:
            _LOG.debug("the subscription could not be closed", extra={"error": error_text(error)})

    def _stopping(self) -> bool:
        return self._options.stop.is_set() or self._pool_stop.is_set()

    def _next(self) -> Job | None:
        self._wake.clear()
        try:
            job, due_in_s = self._queue.claim_next(self._options.kinds, self._options.lease_s)
        except StoreError as error:
            self._log("dequeue failed; trying again", error=error_text(error))
            self._wait(self._options.poll_s, wakes=False)
            return None
        if job is None:
            poll_s = self._options.poll_s
            self._wait(poll_s if due_in_s is None else min(max(due_in_s, _WAIT_SLICE_S), poll_s))
        return job

    def _wait(self, left_s: float, *, wakes: bool = True) -> None:
        while left_s > 0 and not self._stopping():
            flag = self._wake if wakes else self._options.stop
            if flag.wait(min(left_s, _WAIT_SLICE_S)):
                return
            left_s -= _WAIT_SLICE_S

    # ---------------------------------------------------------------- one job

    def _run_job(self, job: Job) -> Job | None:
        """Run one job and write its finish; the next job if one was claimed with it."""
        assert job.claim is not None
        self._heartbeats.set_job(job)
        try:
            finish = self._finish_of(job, job.claim)
        except KeyboardInterrupt:
            # If the store cannot be reached, the lease ends by itself.
            with contextlib.suppress(StoreError):
                self._queue.release(job)
            raise
        except BaseException as error:
            # It stops this worker and would stop the next one too: the attempt is spent.
            failed = Failed(error_text(error))
            failed.traceback = traceback_text(error)
            self._write_finish(job, self._queue.held.decide(job, job.claim, failed))
            raise
        else:
            return self._finish_and_claim(job, finish)
        finally:
            self._heartbeats.set_job(None)

    def _finish_of(self, job: Job, claim: ClaimedJob) -> Finish:
        held = self._queue.held
        try:
            value = self._call_handler(job)
        except JobOutcome as chosen:
            value = chosen
            if isinstance(chosen, Failed | Dead):
                chosen.traceback = traceback_text(chosen)
        except (Exception, asyncio.CancelledError) as error:
            rule = self._queue.retry_rule
            retried = rule is None or rule.allows(error)
            text = error_text(error)
            outcome = Failed(text) if retried else Dead(text)
            outcome.traceback = traceback_text(error)
            return held.decide(job, claim, outcome)
        match value:
            case Failed() | Dead() | Throttled() | Snooze():
                if isinstance(value, Failed | Dead):
                    value.message = storable(value.message)
                return held.decide(job, claim, value)
            case Done(value=result):
                pass
            case result:
                pass
        try:
            body = None if result is None else payload.encode(
                result, limit=payload.MAX_RESULT_BYTES, what="result", fixed_limit=True
            )  # fmt: skip
        except ForgeError as error:
            # A retry would repeat the effects of the job for a result that cannot be stored.
            return held.decide(job, claim, Dead(storable(error)))
        return held.done(job, claim, body)

    def _call_handler(self, job: Job) -> Any:
        value = self._options.handler(job)
        if not inspect.isawaitable(value):
            return value
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(_with_timeout(value, self._options.timeout_s))

    def _finish_and_claim(self, job: Job, finish: Finish) -> Job | None:
        """Finish this job and claim the next one: one exchange instead of two where possible."""
        written, self._next_job = False, None
        if not self._stopping():
            try:
                written, self._next_job = self._queue.held.finish_and_claim(
                    job, finish, self._options.kinds, self._options.lease_s
                )
            except StoreError as error:
                self._log("the outcome of a job may be lost", job, error=error_text(error))
            except BaseException:
                # Interrupted after the handler returned: its outcome is known and is written.
                with contextlib.suppress(ForgeError):
                    self._queue.held.finish(job, finish)
                raise
        if not written:
            self._write_finish(job, finish)
        elif finish.error is not None:
            self._log_failure(job, finish)
        return self._next_job

    def _write_finish(self, job: Job, finish: Finish) -> None:
        """Write the finish; while the store cannot be reached, retry until the lease has ended."""
        until, retries = self._queue.clock.mono() + self._options.lease_s, 0
        while True:
            try:
                self._queue.held.finish(job, finish)
            except (Conflict, NotFound) as error:
                self._log("the outcome of a job was refused", job, error=error_text(error))
            except StoreError as error:
                if self._queue.clock.mono() < until:
                    self._log("the outcome cannot be written; trying again", job,
                              error=error_text(error))  # fmt: skip
                    self._queue.clock.pause(_RETRY_S[min(retries, len(_RETRY_S) - 1)])
                    retries += 1
                    continue
                self._log("the outcome of a job was never written", job, error=error_text(error))
            else:
                if finish.error is not None:
                    self._log_failure(job, finish)
            return

    def _log_failure(self, job: Job, finish: Finish) -> None:
        error = redact.prose(finish.error or "")
        message = job_message(
            f"job {finish.status}", kind=job.type, id=job.id, queue=self._queue.name,
            attempt=f"{job.attempts}/{job.max_attempts}", error=error, traceback=finish.traceback,
        )  # fmt: skip
        fields: dict[str, object] = {
            "queue": self._queue.name, "job_id": job.id, "kind": job.type,
            "attempts": job.attempts, "error": error,
        }  # fmt: skip
        fields[IN_MESSAGE] = frozenset(fields)
        log_with_traceback(_LOG, logging.WARNING, message, fields, finish.traceback)

    def _log(self, message: str, job: Job | None = None, **fields: object) -> None:
        extra: dict[str, object] = {"queue": self._queue.name, **fields}
        if job is not None:
            extra |= {"job_id": job.id, "kind": job.type, "attempts": job.attempts}
        log_facts(_LOG, logging.WARNING, message, **extra)


async def _with_timeout(work: Any, timeout_s: float | None) -> Any:
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            return await work
    except TimeoutError as error:
        if timeout_s is None or not limit.expired():
            raise
        raise Failed(f"timed out after {timeout_s:g} s") from error


def run_pool(options: WorkOptions, workers: int) -> int:
    """Run ``workers`` loops on threads; an error of one loop stops all of them and is raised."""
    whole = isinstance(workers, int) and not isinstance(workers, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not whole or not 1 <= workers <= _MAX_WORKERS:
        raise BadOption(f"workers={workers!r} must be a whole number from 1 to {_MAX_WORKERS}")
    stop_all = threading.Event()
    handled: list[int] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            handled.append(WorkLoop(options, stop_all).run())
        except BaseException as error:
            errors.append(error)
            stop_all.set()

    threads = [
        threading.Thread(target=work, name=f"forge-pull-{number}", daemon=True)
        for number in range(workers)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        # Ctrl-C reaches this thread only: the others finish the jobs they hold.
        stop_all.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        raise
    if errors:
        raise errors[0]
    return sum(handled)
