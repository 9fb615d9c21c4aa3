"""The object a handler gets about its job: ``Context``.

A Context is connected to a ``RunLink``: the run in this process, or the worker process when the
handler runs in a child process. It never calls the store by itself.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from forge_jobs.core.errors import BadOption
from forge_jobs.core.ids import job_id
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.job import Bindable, ClaimedJob, Enqueued, LogLine, ManyBindable, NewJob
from forge_jobs.core.outcome import Stopped
from forge_jobs.core.parent import Via, with_parent
from forge_jobs.engine.steps.context_steps import ContextSteps
from forge_jobs.kit import redact
from forge_jobs.kit.clock import Clock

if TYPE_CHECKING:
    from forge_jobs.engine.steps.handler_steps import HandlerSteps

    from .rate_limit import RateLimiter

P = ParamSpec("P")
_LOG = logging.getLogger("forge_jobs.job")
MAX_LINE_CHARS = 4_096
MAX_NOTE_CHARS = 512


class HandlerEnqueuer(Protocol):
    """Stores new jobs on behalf of handlers."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """From synchronous code."""
        ...

    async def aenqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """From a coroutine."""
        ...

    def prepare(self, job: NewJob) -> NewJob:
        """The job as the hooks change it, for one that is stored together with a finish."""
        ...


class RunLink(Protocol):
    """What a context is connected to. Every method may be called from any thread."""

    @property
    def stop_reason(self) -> str | None:
        """Why the handler should end now; None while it may continue."""
        ...

    @property
    def options(self) -> Mapping[str, Any] | None:
        """The rare options that hold for this run; None for most jobs. Contexts read it when they
        need a value, so that jobs without options pay nothing."""
        ...

    @property
    def started_at(self) -> float:
        """When the run started, on ``clock.mono()`` of the handler's process."""
        ...

    def report(self, *, progress: float | None, note: str | None, line: LogLine | None) -> None:
        """Keep progress or a log line; it is written with one of the next exchanges."""
        ...

    def add_successor(self, job: NewJob) -> None:
        """Store this job in the transaction that finishes the current one as done."""
        ...

    def handler_steps(self) -> "HandlerSteps":
        """The steps of this run; made by the first call."""
        ...

    def payload_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The payload of a restart with these arguments."""
        ...


class Closable(Protocol):
    """Something that a worker process closes when it stops."""

    async def close(self) -> None:
        """Release its resources, quickly."""
        ...


C = TypeVar("C", bound=Closable)


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """What all contexts of a process share.

    ``host_id`` is called at each use: a process that was declared dead registers under another
    one. ``request`` makes the request for a job of a kind with a payload. ``shared`` is what
    handlers keep for all their jobs, closed when the process stops. ``limiter`` gives the permits
    of the process.
    """

    host_id: Callable[[], str]
    tag: int
    clock: Clock
    enqueuer: HandlerEnqueuer
    request: Callable[[str, Any], NewJob]
    shared: dict[object, Any] = field(default_factory=dict[object, Any])
    limiter: "Callable[[], RateLimiter] | None" = None


@dataclass(frozen=True, slots=True)
class JobInfo:
    """The job as its handler sees it; ``attempts`` counts this run."""

    id: str
    kind: str
    queue: str
    attempts: int
    max_attempts: int
    enqueued_at: datetime
    tags: tuple[str, ...]
    trace: str | None = None

    @classmethod
    def of(cls, job: ClaimedJob, tag: int) -> "JobInfo":
        """The readable form of a claim."""
        return cls(
            id=job_id(job.key, job.enqueued_at, tag),
            kind=job.kind,
            queue=job.queue,
            attempts=job.attempts,
            max_attempts=job.max_attempts,
            enqueued_at=to_datetime(job.enqueued_at),
            tags=job.tags,
            trace=job.trace,
        )


class JobLog:
    """A small logger: lines go to the job's own log in the store and to Python's logging."""

    __slots__ = ("_clock", "_extra", "_link")

    def __init__(self, info: JobInfo, link: RunLink, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._extra = {
            "kind": info.kind,
            "queue": info.queue,
            "job_id": info.id,
            "attempts": info.attempts,
        }

    def debug(self, message: str, *args: object) -> None:
        """A line for debugging."""
        self._write(logging.DEBUG, "debug", message, args)

    def info(self, message: str, *args: object) -> None:
        """A line about what happens."""
        self._write(logging.INFO, "info", message, args)

    def warning(self, message: str, *args: object) -> None:
        """Something unusual that a person may want to know."""
        self._write(logging.WARNING, "warning", message, args)

    def error(self, message: str, *args: object) -> None:
        """Something went wrong."""
        self._write(logging.ERROR, "error", message, args)

    def keep(self, level: str, text: str) -> None:
        """A line for the job's own log only, not for the worker's: it may be long."""
        line = LogLine(self._clock.now(), level, _storable(text, MAX_LINE_CHARS))
        self._link.report(progress=None, note=None, line=line)

    def _write(self, level: int, name: str, message: str, args: tuple[object, ...]) -> None:
        text = _storable(str(message) % args if args else str(message), MAX_LINE_CHARS)
        self._link.report(progress=None, note=None, line=LogLine(self._clock.now(), name, text))
        _LOG.log(level, "%s", text, extra=self._extra)


class Context(ContextSteps):
    """Passed to handlers that declare it by annotation.

    >>> @forge.task
    ... def resize(path: str, ctx: Context) -> str:
    ...     ctx.progress(0.5, "loaded")
    ...     ctx.log.info("resizing %s", path)
    ...     ctx.raise_if_cancelled()
    ...     return f"{path}, attempt {ctx.job.attempts}"
    >>> job = resize.enqueue("a.png")
    >>> report = forge.drain().run()
    >>> job.result(timeout=10)
    'a.png, attempt 1'
    """

    __slots__ = ("_environment", "_link", "_log", "deadline", "job")

    def __init__(
        self,
        job: JobInfo,
        link: RunLink,
        environment: RunEnvironment,
        *,
        deadline: datetime | None = None,
    ) -> None:
        self.job = job
        self.deadline = deadline
        self._link = link
        self._environment = environment
        self._log: JobLog | None = None

    @property
    def host_id(self) -> str:
        """The worker process that runs this job."""
        return self._environment.host_id()

    @property
    def cancelled(self) -> bool:
        """Whether the handler should end now: cancelled, timed out, or the worker must stop.

        Leave by raising (``raise_if_cancelled``): a plain return counts as success, except after
        the timeout.
        """
        return self._link.stop_reason is not None

    def raise_if_cancelled(self) -> None:
        """Leave the handler here if it was told to end: ``ctx.raise_if_cancelled()``."""
        reason = self._link.stop_reason
        if reason is not None:
            raise Stopped(reason)

    @property
    def soft_timeout_reached(self) -> bool:
        """Whether the run has lasted longer than its ``soft_timeout``: time to wrap up.

        Nothing is interrupted. How the handler ends counts as always: a return is a success, an
        exception a failure that is retried, ``Snooze`` a later run that costs no attempt.
        """
        left_s = self._soft_timeout_in_s()
        return left_s is not None and left_s <= 0

    @asynccontextmanager
    async def until_soft_timeout(self) -> AsyncGenerator[None]:
        """``async with ctx.until_soft_timeout():`` leaves its block with TimeoutError, at an
        ``await``, once the soft timeout is reached. Only the block is interrupted, so that cleanup
        and transactions outside it are safe."""
        limit = asyncio.timeout(self._soft_timeout_in_s())
        try:
            async with limit:
                yield
        except TimeoutError:
            if limit.expired():
                raise TimeoutError("the soft timeout was reached") from None
            raise

    @property
    def log(self) -> JobLog:
        """The job's own log: 1,000 lines of at most 4,096 characters are kept."""
        if self._log is None:
            self._log = JobLog(self.job, self._link, self._environment.clock)
        return self._log

    @property
    def rate_limit(self) -> "RateLimiter":
        """Permits of the cluster's rate limits."""
        if self._environment.limiter is None:
            raise BadOption("ctx.rate_limit needs a store: this handler runs without one")
        return self._environment.limiter()

    def shared(self, key: object, make: Callable[[], C]) -> C:
        """One object for all jobs of this worker process: made by the first call, on the worker's
        loop, and closed when the worker stops. For ``async def`` handlers: calls from threads may
        make two."""
        found = self._environment.shared.get(key)
        if found is None:
            found = self._environment.shared[key] = make()
        return found

    def progress(self, fraction: float, note: str | None = None) -> None:
        """How far the job is, from 0 to 1, with an optional note of at most 512 characters:
        ``ctx.progress(0.5, "rendered")``."""
        if not 0 <= fraction <= 1:
            raise BadOption(f"progress({fraction!r}) must lie between 0 and 1")
        text = None if note is None else _storable(note, MAX_NOTE_CHARS)
        self._link.report(progress=float(fraction), note=text, line=None)

    @overload
    def on_done(self, task: Bindable[P], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    @overload
    def on_done(self, task: str, payload: object = ..., /, **kwargs: object) -> None: ...

    def on_done(self, task: Any, /, *args: Any, **kwargs: Any) -> None:
        """Enqueue a job in the transaction that finishes this one, and only if it succeeds:
        ``ctx.on_done(send, "a@b.c")``."""
        job = with_parent(self._bound(task, args, kwargs), self.job.id, Via.ON_DONE)
        self._link.add_successor(self._environment.enqueuer.prepare(job))

    @overload
    def enqueue(self, task: Bindable[P], /, *args: P.args, **kwargs: P.kwargs) -> Enqueued: ...
    @overload
    def enqueue(self, task: str, payload: object = ..., /, **kwargs: object) -> Enqueued: ...

    def enqueue(self, task: Any, /, *args: Any, **kwargs: Any) -> Enqueued:
        """Store a job now, from synchronous code; a kind takes its payload as one argument:
        ``ctx.enqueue(send, "a@b.c")``."""
        return self._environment.enqueuer.enqueue([self._bound(task, args, kwargs)])[0]

    @overload
    async def aenqueue(
        self, task: Bindable[P], /, *args: P.args, **kwargs: P.kwargs
    ) -> Enqueued: ...
    @overload
    async def aenqueue(self, task: str, payload: object = ..., /, **kwargs: object) -> Enqueued: ...

    async def aenqueue(self, task: Any, /, *args: Any, **kwargs: Any) -> Enqueued:
        """Store a job now, from a coroutine."""
        return (await self._environment.enqueuer.aenqueue([self._bound(task, args, kwargs)]))[0]

    def enqueue_many(self, task: ManyBindable | str, calls: Iterable[Any]) -> list[Enqueued]:
        """Store many jobs now, in one transaction, from synchronous code; replies in their order.

        ``calls`` are those of ``task.enqueue_many``; for a kind they are payloads.
        """
        jobs = self._bound_many(task, calls)
        return self._environment.enqueuer.enqueue(jobs) if jobs else []

    async def aenqueue_many(self, task: ManyBindable | str, calls: Iterable[Any]) -> list[Enqueued]:
        """``enqueue_many`` for coroutines."""
        jobs = self._bound_many(task, calls)
        return await self._environment.enqueuer.aenqueue(jobs) if jobs else []

    def _handler_steps(self) -> "HandlerSteps":
        return self._link.handler_steps()

    def _payload_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        return self._link.payload_of(args, kwargs)

    def _soft_timeout_in_s(self) -> float | None:
        """The seconds until the soft timeout; None without one."""
        options = self._link.options
        soft_s = None if options is None else options.get("soft_timeout_s")
        if soft_s is None:
            return None
        return self._link.started_at + soft_s - self._environment.clock.mono()

    def _bound_many(self, task: ManyBindable | str, calls: Iterable[Any]) -> list[NewJob]:
        if not isinstance(task, str):
            return task.bind_many(calls)
        return [self._environment.request(task, payload) for payload in calls]

    def _bound(
        self, task: Bindable[...] | str, args: tuple[object, ...], kwargs: dict[str, Any]
    ) -> NewJob:
        if not isinstance(task, str):
            return task.bind(*args, **kwargs)
        if len(args) > 1 or (args and kwargs):
            raise BadOption(
                f"enqueue({task!r}, …) by kind takes one payload object, or keyword arguments"
            )
        return self._environment.request(task, args[0] if args else kwargs)


JobCtx = Context


def _storable(text: str, max_chars: int) -> str:
    clean = text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    return redact.text(clean if len(clean) <= max_chars else clean[: max_chars - 1] + "…")
