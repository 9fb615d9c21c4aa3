"""The handlers of a process: which function runs jobs of which kind, and where."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core import payload
from forge_jobs.core.alert_rule import AlertRule
from forge_jobs.core.declaration import Declaration, Declare
from forge_jobs.core.errors import BadArguments, BadOption, KindTaken
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.kind_signature import TAKES_ANYTHING, KindSignature
from forge_jobs.core.limits import Declared
from forge_jobs.core.names import kind_name
from forge_jobs.core.outcome import JobOutcome
from forge_jobs.core.retry import Retry
from forge_jobs.kit.hooks import Hooks

from .context import Context
from .hooks import AnyRunHook, with_hooks
from .rate_limit import RateLimit


class RunIn(StrEnum):
    """Where a handler runs: on the event loop, in a thread, or in a child process."""

    LOOP = "loop"
    THREAD = "thread"
    CHILD = "child"


@dataclass(frozen=True, slots=True)
class ChildTarget:
    """How a child process finds the handler again.

    It imports ``module``, or runs ``file`` under another name when the function lives in
    ``__main__``, and looks there for the object that knows ``kind``.
    """

    module: str | None
    file: str | None
    kind: str


def _takes_anything() -> KindSignature:
    return TAKES_ANYTHING


@dataclass(frozen=True, slots=True)
class Handler:
    """A kind and how to run it.

    ``call(payload, make_context)`` decodes the arguments and calls the user's function: with LOOP
    it returns a coroutine, otherwise the value. ``make_context`` is only called for functions that
    take a Context. ``child`` None: the job cannot be moved to a process of its own; ``apart``: it
    need not be, since it does its work in other processes anyway. ``options``: rare options for
    jobs that have no value of their own. ``declare`` makes what workers publish for the kind; it is
    called when the annotations of the function can be evaluated. ``signature()`` is what it takes,
    for workers of other versions. ``encode`` makes the payload of a call.
    """

    kind: str
    run_in: RunIn
    call: Callable[[bytes, Callable[[], Context]], Any]
    queue: str | None = None
    retry: Retry | None = None
    timeout_s: float | None = None
    scopes: tuple[str, ...] = ()
    result_limit: int = payload.MAX_RESULT_BYTES
    child: ChildTarget | None = None
    apart: bool = False
    options: Mapping[str, Any] | None = None
    declare: Declare | None = None
    signature: Callable[[], KindSignature] = _takes_anything
    encode: Callable[[tuple[Any, ...], dict[str, Any]], bytes] | None = None

    def payload_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The payload of a call with these arguments, checked where there is a signature."""
        if self.encode is not None:
            return self.encode(args, kwargs)
        if len(args) > 1 or (args and kwargs):
            raise BadArguments(f"kind {self.kind!r} takes one payload object")
        return payload.encode(args[0] if args else kwargs)


class JobHandler(Protocol):
    """The lower-level form: an object with a kind and an async ``run``.

    >>> class Ping:
    ...     kind = "ping"
    ...     async def run(self, ctx: Context, payload: dict[str, str]) -> str:
    ...         return payload["host"]
    >>> forge.register(Ping(), queue="net")
    """

    @property
    def kind(self) -> str:
        """The kind of job it runs."""
        ...

    async def run(self, ctx: Context, payload: Any) -> JobOutcome | Any:
        """Do the work; return an outcome or the result, or raise."""
        ...


class HandlerRegistry:
    """Every handler of a process, by kind, the rate limits that they declare, by scope, and the
    declared limits of tasks and queues, by name.

    >>> registry = HandlerRegistry()
    >>> registry.register(NoopEcho(), queue="tests")
    >>> registry.kinds()
    {'noop_echo': 'tests'}
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._bare: dict[str, Handler] = {}
        self._built_in: dict[str, Handler] = {}
        self._hooks: list[AnyRunHook] = []
        self.around_enqueue: Hooks[NewJob, Enqueued] = Hooks()
        self.rate_limits: dict[str, RateLimit] = {}
        self.limits: dict[str, Declared] = {}
        self.alerts: dict[str, AlertRule] = {}

    def register(
        self,
        handler: "JobHandler | Handler",
        *,
        queue: str | None = None,
        timeout_s: float | None = None,
        retry: Retry | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a handler. KindTaken when its kind already has one; BadName for a bad kind.

        The options are for handler objects; a ``Handler`` has them as fields.
        """
        known = handler
        if not isinstance(known, Handler):
            declared = Declaration(
                template=NewJob(
                    kind=known.kind,
                    queue=queue or DEFAULT_QUEUE,
                    timeout_s=timeout_s,
                    options=options,
                )
            )
            known = replace(
                _adapted(known),
                queue=queue,
                timeout_s=timeout_s,
                retry=retry,
                options=options,
                declare=lambda: declared,
            )
        kind_name(known.kind)
        if known.kind in self._handlers:
            raise KindTaken(
                f"kind {known.kind!r} is registered twice: give one of the tasks another kind"
            )
        self._bare[known.kind] = known
        self._handlers[known.kind] = self._within_hooks(known)

    def surround(self, hook: AnyRunHook) -> None:
        """Put a hook around every handler, present and future; the first one is outermost."""
        self._hooks.append(hook)
        self._wrap_all()

    def stop_surrounding(self, hook: AnyRunHook) -> None:
        """Remove a hook again; runs that have started keep it."""
        self._hooks.remove(hook)
        self._wrap_all()

    def _wrap_all(self) -> None:
        for kind, handler in self._bare.items():
            self._handlers[kind] = self._within_hooks(handler)

    def _within_hooks(self, handler: Handler) -> Handler:
        if not self._hooks:
            return handler
        on_loop = handler.run_in is RunIn.LOOP
        return replace(handler, call=with_hooks(handler.call, self._hooks, on_loop=on_loop))

    def add_built_in(self, handler: Handler) -> None:
        """Add a handler of the library itself: no hook surrounds it, and it is not published."""
        self._built_in[handler.kind] = handler

    def get(self, kind: str) -> Handler | None:
        """The handler of a kind."""
        return self._handlers.get(kind) or self._built_in.get(kind)

    def declaration(self, kind: str) -> Declaration | None:
        """What the task or handler of a kind declares; None for a kind without one here."""
        handler = self._handlers.get(kind)
        return None if handler is None or handler.declare is None else handler.declare()

    def declarations(self) -> dict[str, Declaration]:
        """What every task and handler declares, by kind."""
        known = {kind: self.declaration(kind) for kind in self._handlers}
        return {kind: declared for kind, declared in known.items() if declared is not None}

    def kinds(self) -> dict[str, str | None]:
        """Every kind with the queue its task names, if it names one."""
        return {kind: handler.queue for kind, handler in self._handlers.items()}

    def signature(self, kind: str) -> KindSignature:
        """What this process takes of a kind it has."""
        try:
            return self._bare[kind].signature()
        except BadOption:
            # An annotation that cannot be evaluated: each job of this kind fails with that error.
            return TAKES_ANYTHING

    def signatures(self) -> dict[str, KindSignature]:
        """What this process takes, by kind."""
        return {kind: self.signature(kind) for kind in self._bare}

    def handlers(self) -> tuple[Handler, ...]:
        """All handlers in the order of their registration."""
        return tuple(self._handlers.values())


def _adapted(handler: JobHandler) -> Handler:
    run, decode = handler.run, payload.decode

    def call(data: bytes, make_context: Callable[[], Context]) -> Any:
        return run(make_context(), decode(data))

    return Handler(
        kind=handler.kind,
        run_in=RunIn.LOOP,
        call=call,
        result_limit=getattr(handler, "result_limit", payload.MAX_RESULT_BYTES),
        apart=getattr(handler, "apart", False),
    )
