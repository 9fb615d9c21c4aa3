"""Tasks: functions whose calls can be stored as jobs, typed by the function's signature."""

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, Unpack, cast

import msgspec

from forge_jobs.core.declaration import with_fields
from forge_jobs.core.errors import BadArguments
from forge_jobs.core.job import NewJob, Successor
from forge_jobs.core.limit_key import limit_key
from forge_jobs.core.limits import with_declared

from .job import Job
from .job_client import JobClient
from .options import JobOptions, TaskSettings, job_fields
from .signature import NOTHING, Signature

P = ParamSpec("P")
R = TypeVar("R")
Call: TypeAlias = "tuple[Any, ...] | list[Any] | Mapping[str, Any] | NewJob"
_IN_ORDER = (tuple, list)
_replace = msgspec.structs.replace
_update_wrapper: Any = functools.update_wrapper


class Enqueueable(Generic[P, R]):
    """What a task and a task with options have in common: their calls can be stored as jobs."""

    _signature: Signature
    _client: JobClient
    _template: NewJob
    _limit: int
    _read: Callable[[bytes], Any]
    _tx: object
    _per: str | None

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """The request for a job with these arguments, checked but not stored:
        ``send.bind("a@b.c")``."""
        return self._job(self._signature.encode(args, kwargs, limit=self._limit))

    def bind_payload(self, payload: object) -> NewJob:
        """``bind`` with the arguments by name in one mapping; None means no arguments."""
        if payload is None:
            payload = {}
        if not isinstance(payload, Mapping):
            raise BadArguments(
                f"task {self._template.kind!r}: the payload must be an object with its arguments "
                f"by name: it takes {self._signature}"
            )
        values = cast("Mapping[str, Any]", payload)
        return self._job(self._signature.encode_mapping(values, limit=self._limit))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Store a call with these arguments as a job and return its handle.

        The job is durable when this returns. Raises BadArguments when the arguments do not fit the
        function, BadPayload or PayloadTooLarge when they cannot be stored.

        ``send.enqueue("a@b.c", subject="news")``
        """
        job = self._job(self._signature.encode(args, kwargs, limit=self._limit))
        return self._client.enqueue(job, self._read, self._tx)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """``enqueue`` for coroutines."""
        job = self._job(self._signature.encode(args, kwargs, limit=self._limit))
        return await self._client.aenqueue(job, self._read, self._tx)

    def enqueue_many(self, calls: Iterable[Call]) -> list[Job[R]]:
        """Store many calls in one transaction, all of them or none; handles in the same order.

        Each call is a tuple of arguments, or a mapping of arguments by name:
        ``send.enqueue_many([("a@b.c", "hi"), {"to": "b@b.c", "subject": "hi"}])``. A type checker
        cannot check these; it checks ``send.enqueue_many([send.bind("a@b.c", subject="hi")])``.
        """
        return self._client.enqueue_many(self.bind_many(calls), self._read, self._tx)

    async def aenqueue_many(self, calls: Iterable[Call]) -> list[Job[R]]:
        """``enqueue_many`` for coroutines."""
        return await self._client.aenqueue_many(self.bind_many(calls), self._read, self._tx)

    def bind_many(self, calls: Iterable[Call]) -> list[NewJob]:
        """The requests for many calls, checked but not stored."""
        encode, template, limit, made = (
            self._signature.encode, self._template, self._limit, self._job
        )  # fmt: skip
        bound: list[NewJob] = []
        for index, call in enumerate(calls):
            try:
                if isinstance(call, _IN_ORDER):
                    data = encode(tuple(call), {}, limit=limit)
                elif isinstance(call, Mapping):
                    data = encode((), dict(call), limit=limit)
                elif call.__class__ is NewJob and call.kind == template.kind:
                    data = call.payload
                else:
                    raise self._no_call(call)
            except BadArguments as error:
                raise BadArguments(f"call number {index}: {error}") from error
            bound.append(made(data))
        return bound

    def _no_call(self, call: object) -> BadArguments:
        kind = self._template.kind
        if isinstance(call, NewJob):
            return BadArguments(f"task {kind!r}: a call of {call.kind!r} is none of this task")
        return BadArguments(
            f"task {kind!r}: {type(call).__name__} is no call: pass a tuple of arguments, a "
            "mapping of arguments by name, or what bind(...) returned"
        )

    def _job(self, data: bytes) -> NewJob:
        """The request for these encoded arguments."""
        if self._per is not None:
            key = limit_key(self._template.kind, self._per, data)
            return _replace(self._template, payload=data, limit_key=key)
        return self._template if data is NOTHING else _replace(self._template, payload=data)


class TaskWith(Enqueueable[P, R]):
    """A task with options for the jobs enqueued through it; made by ``task.using(...)``.

    >>> urgent = send.using(priority=-10)
    >>> jobs = urgent.enqueue_many([("a@b.c", "hi"), {"to": "b@b.c"}])
    >>> len(jobs)
    2
    """

    def __init__(self, task: "Task[P, R]", options: Mapping[str, Any]) -> None:
        self.task = task
        self._options = options
        self._signature = task.signature
        self._client = task.client
        self._limit = task.settings.payload_limit
        self._read = task.signature.read_result
        self._template = with_fields(task.template, job_fields(options), where="using(...)")
        self._tx = options.get("tx")
        self._per = task.settings.per

    def using(self, **options: Unpack[JobOptions]) -> "TaskWith[P, R]":
        """The same task with these options on top of the present ones."""
        return TaskWith(self.task, {**self._options, **options})


class MakeLocal(Protocol):
    """Makes the Context of a direct call of a task, which runs without a worker."""

    def __call__(self, template: NewJob) -> "DirectCall": ...


class DirectCall(Protocol):
    """One direct call: its Context, and what to do after it succeeded."""

    @property
    def context(self) -> object: ...
    def succeeded(self) -> None: ...
    async def asucceeded(self) -> None: ...


class Task(Enqueueable[P, R]):
    """A registered function, as ``@forge.task`` returns it.

    ``enqueue`` and ``aenqueue`` store a call as a job; ``using(...)`` sets options for single jobs;
    a plain call runs the function in place and stores no job for it (``DefTask`` for ``def``,
    ``AsyncTask`` for ``async def``); jobs that the function enqueues are stored, those of
    ``ctx.on_done`` once it has succeeded. ``kind`` is the task's name in the store, ``settings``
    are its checked options.

    >>> @forge.task(queue="mail", max_attempts=5)
    ... def welcome(name: str) -> str:
    ...     return f"Welcome, {name}!"
    >>> welcome("Ada")  # a plain call
    'Welcome, Ada!'
    >>> job = welcome.enqueue("Ada")  # stored; in a coroutine: await welcome.aenqueue("Ada")
    >>> later = welcome.using(delay="10m", priority=-5).enqueue("Grace")
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        kind: str,
        settings: TaskSettings,
        signature: Signature,
        client: JobClient,
        make_local: MakeLocal,
        on_dead: Successor | None = None,
    ) -> None:
        _update_wrapper(self, function)
        self.kind = kind
        self.function = function
        self.settings = settings
        self.signature = signature
        self.client = client
        self._make_local = make_local
        self._signature = signature
        self._client = client
        self._limit = settings.payload_limit
        self._read = signature.read_result
        self._tx = None
        self._per = settings.per
        declared = settings.declared(kind)
        self._template = NewJob(
            kind=kind,
            queue=settings.queue,
            payload=NOTHING,
            priority=settings.priority,
            max_attempts=settings.max_attempts,
            timeout_s=settings.timeout_s,
            tags=settings.tags,
            lane=settings.lane,
            order=settings.order,
            track=declared is not None and with_declared(None, declared, 0).tracked,
            on_dead=on_dead,
            options=settings.options,
        )

    @property
    def queue(self) -> str:
        """The queue of its jobs, unless ``using(queue=…)`` names another."""
        return self._template.queue

    @property
    def template(self) -> NewJob:
        """A request of this task without arguments."""
        return self._template

    def using(self, **options: Unpack[JobOptions]) -> TaskWith[P, R]:
        """The same task with options for the jobs enqueued through it; see ``JobOptions``.

        ``send.using(delay="10m", priority=-5, dedupe_key="welcome:42").enqueue("a@b.c")``
        """
        return TaskWith(self, options)

    def successor(self) -> Successor:
        """This task as the ``on_dead`` successor of another."""
        template = self._template
        return Successor(
            self.kind,
            self.queue,
            template.max_attempts,
            priority=template.priority,
            timeout_s=template.timeout_s,
            tags=template.tags,
            lane=template.lane,
            order=template.order,
            track=template.track,
            per=self._per,
            on_dead=template.on_dead,
            options=template.options,
        )

    def __repr__(self) -> str:
        return f"<task {self.kind} in queue {self.queue}>"


class DefTask(Task[P, R]):
    """A task made of a ``def``.

    >>> @forge.task
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> double(21)  # a plain call: nothing is stored
    42
    """

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function in place; nothing is stored."""
        if not self.signature.wants_context:
            return self.function(*args, **kwargs)
        run = self._make_local(self.template)
        filled, named = self.signature.fill_in(args, kwargs, lambda: run.context)
        value = self.function(*filled, **named)
        run.succeeded()
        return value


class AsyncTask(Task[P, R]):
    """A task made of an ``async def``.

    >>> @forge.task
    ... async def fetch(url: str) -> int:
    ...     return len(url)
    >>> asyncio.run(fetch("https://example.org"))  # a plain call: nothing is stored
    19
    """

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """The coroutine of the function itself; nothing is stored."""
        if not self.signature.wants_context:
            return self.function(*args, **kwargs)
        return self._call_with_context(args, kwargs)

    async def _call_with_context(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        run = self._make_local(self.template)
        filled, named = self.signature.fill_in(args, kwargs, lambda: run.context)
        value = await self.function(*filled, **named)
        await run.asucceeded()
        return value
