"""The worker loop and the pool: dequeue, call the handler, write what came of it."""

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
from forge_jobs.kit.thread_result import ThreadResult
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
# Two things may end a wait, the caller's flag and a wake-up, and only one can be waited for.
_SLICE_S: Final = 0.05
_AGAIN_S: Final = (0.1, 0.5, 1.0, 2.0)
_MAX_WORKERS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """What a loop does, checked."""

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
    ) -> "WorkPlan":
        """An error that names the argument, before anything is started."""
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
    """One worker: one job at a time on the calling thread."""

    def __init__(self, plan: WorkPlan, halt: threading.Event | None = None) -> None:
        self._plan = plan
        self._queue = plan.queue
        self._halt = halt or threading.Event()
        self._wake = threading.Event()
        self._keeper = Heartbeats(
            plan.queue.holding,
            plan.queue.access.ready(),
            clock=plan.queue.clock,
            entropy=plan.queue.entropy,
            lease_s=plan.lease_s,
            timeout_s=plan.timeout_s,
        )
        self._runner: asyncio.Runner | None = None
        # The job that came with the end of the last one.
        self._following: Job | None = None

    def run(self) -> int:
        """Work until told to stop; how many jobs were handled."""
        access, handled = self._queue.access, 0
        heard: Subscription | None = None
        keeping: ThreadResult[None] | None = None
        job: Job | None = None
        try:
            heard = access.run(lambda store: store.subscribe([self._queue.name], self._wake.set))
            keeping = access.start(self._keeper.run)
            while not self._stopping():
                job = job or self._next()
                if job is not None:
                    handled, job = handled + 1, self._handle(job)
            if job is not None:
                # It came with the end of the last one and was not begun.
                self._queue.release(job)
            return handled
        except BaseException:
            self._hand_back(job)
            raise
        finally:
            if keeping is not None:
                keeping.cancel()
            if self._runner is not None:
                self._runner.close()
            if heard is not None:
                self._unsubscribe(heard)

    def _hand_back(self, job: Job | None) -> None:
        """Interrupted, perhaps between two steps: no effect on a job that was ended before."""
        for held in (job, self._following):
            if held is not None:
                # If the store is away its lease ends by itself.
                with contextlib.suppress(ForgeError):
                    self._queue.release(held)

    def _unsubscribe(self, heard: Subscription) -> None:
        # The store may be gone by now; the wake-up is gone with it.
        try:
            self._queue.access.run(lambda _: heard.close())
        except ForgeError as error:
            _LOG.debug("a wake-up could not be cancelled", extra={"error": error_text(error)})

    def _stopping(self) -> bool:
        return self._plan.stop.is_set() or self._halt.is_set()

    def _next(self) -> Job | None:
        self._wake.clear()
        try:
            job, due_s = self._queue.take(self._plan.kinds, self._plan.lease_s)
        except StoreError as error:
            self._log("dequeue failed; trying again", error=error_text(error))
            self._wait(self._plan.poll_s, wakes=False)
            return None
        if job is None:
            poll_s = self._plan.poll_s
            self._wait(poll_s if due_s is None else min(max(due_s, _SLICE_S), poll_s))
        return job

    def _wait(self, left_s: float, *, wakes: bool = True) -> None:
        while left_s > 0 and not self._stopping():
            flag = self._wake if wakes else self._plan.stop
            if flag.wait(min(left_s, _SLICE_S)):
                return
            left_s -= _SLICE_S

    # ---------------------------------------------------------------- one job

    def _handle(self, job: Job) -> Job | None:
        """Run one job to its end; perhaps the next one."""
        assert job.claim is not None
        self._keeper.watch(job)
        try:
            finish = self._outcome(job, job.claim)
        except KeyboardInterrupt:
            # If the store is away its lease ends by itself.
            with contextlib.suppress(StoreError):
                self._queue.release(job)
            raise
        except BaseException as error:
            # It ends this worker, and would end the next one too: the attempt counts.
            self._settle(job, self._queue.holding.finish(job, job.claim, Failed(error_text(error))))
            raise
        else:
            return self._swap(job, finish)
        finally:
            self._keeper.watch(None)

    def _outcome(self, job: Job, claim: ClaimedJob) -> Finish:
        holding = self._queue.holding
        try:
            value = self._called(job)
        except JobOutcome as chosen:
            value = chosen
        except (Exception, asyncio.CancelledError) as error:
            rule = self._queue.retry_rule
            retried = rule is None or rule.allows(error)
            text = error_text(error)
            return holding.finish(job, claim, Failed(text) if retried else Dead(text))
        match value:
            case Failed() | Dead() | Throttled() | Snooze():
                if isinstance(value, Failed | Dead):
                    value.message = storable(value.message)
                return holding.finish(job, claim, value)
            case Done(value=result):
                pass
            case result:
                pass
        try:
            body = None if result is None else payload.encode(
                result, limit=payload.MAX_RESULT_BYTES, what="result"
            )  # fmt: skip
        except ForgeError as error:
            # Running it again would repeat its effects for the sake of a value nobody can store.
            return holding.finish(job, claim, Dead(storable(error)))
        return holding.done(job, claim, body)

    def _called(self, job: Job) -> Any:
        value = self._plan.handler(job)
        if not inspect.isawaitable(value):
            return value
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(_within(value, self._plan.timeout_s))

    def _swap(self, job: Job, finish: Finish) -> Job | None:
        """The end of this job and the next one: one round instead of two while all is well."""
        written, self._following = False, None
        if not self._stopping():
            try:
                written, self._following = self._queue.holding.end_and_adopt(
                    job, finish, self._plan.kinds, self._plan.lease_s
                )
            except StoreError as error:
                self._log("the outcome of a job may be lost", job, error=error_text(error))
            except BaseException:
                # Interrupted: the handler has ended, and what came of it is known.
                with contextlib.suppress(ForgeError):
                    self._queue.holding.end(job, finish)
                raise
        if not written:
            self._settle(job, finish)
        elif finish.error is not None:
            self._log(f"job {finish.status}", job, error=finish.error)
        return self._following

    def _settle(self, job: Job, finish: Finish) -> None:
        """Write the end; while the store is away, again and again until the lease is over."""
        until, tries = self._queue.clock.mono() + self._plan.lease_s, 0
        while True:
            try:
                self._queue.holding.end(job, finish)
            except (Conflict, NotFound) as error:
                self._log("the outcome of a job was refused", job, error=error_text(error))
            except StoreError as error:
                if self._queue.clock.mono() < until:
                    self._log("the outcome cannot be written; trying again", job,
                              error=error_text(error))  # fmt: skip
                    self._queue.clock.pause(_AGAIN_S[min(tries, len(_AGAIN_S) - 1)])
                    tries += 1
                    continue
                self._log("the outcome of a job was never written", job, error=error_text(error))
            else:
                if finish.error is not None:
                    self._log(f"job {finish.status}", job, error=finish.error)
            return

    def _log(self, message: str, job: Job | None = None, **facts: object) -> None:
        about: dict[str, object] = {"queue": self._queue.name, **facts}
        if job is not None:
            about |= {"job_id": job.id, "kind": job.type, "attempts": job.attempts}
        _LOG.warning(message, extra=about)


async def _within(work: Any, timeout_s: float | None) -> Any:
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError as error:
        if timeout_s is None:
            raise
        raise Failed(f"timed out after {timeout_s:g} s") from error


def run_pool(plan: WorkPlan, workers: int) -> int:
    """Loops on threads; the first that breaks stops all, and its error is raised."""
    whole = isinstance(workers, int) and not isinstance(workers, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not whole or not 1 <= workers <= _MAX_WORKERS:
        raise BadOption(f"workers={workers!r} must be a whole number from 1 to {_MAX_WORKERS}")
    halt = threading.Event()
    handled: list[int] = []
    broken: list[BaseException] = []

    def serve() -> None:
        try:
            handled.append(WorkLoop(plan, halt).run())
        except BaseException as error:
            broken.append(error)
            halt.set()

    threads = [
        threading.Thread(target=serve, name=f"forge-pull-{number}", daemon=True)
        for number in range(workers)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        # Ctrl-C reaches this thread alone: the others finish the jobs they have.
        halt.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        raise
    if broken:
        raise broken[0]
    return sum(handled)
