"""The steps of one run, on the handler's side: identities, functions, and when the run parks.

Each coroutine here only awaits its port and the user's function. For ``def`` handlers neither
suspends it, so that it runs without an event loop (``callers.run_blocking``).
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from forge_jobs.core.errors import BadStep
from forge_jobs.core.events import Wait
from forge_jobs.core.instant import Instant
from forge_jobs.core.outcome import Dead, JobOutcome
from forge_jobs.core.retry import Retry
from forge_jobs.core.steps import StepKind, StepRecord, StepWrite
from forge_jobs.kit.call_threads import call_in_thread

from .names import CalledStep, StepNames
from .port import StepPort
from .signals import Suspended
from .values import StepFunction, error_of, fingerprint, step_function, stored_error

if TYPE_CHECKING:
    from .callers import StepCaller

MAX_WAIT_IN_PLACE_S: Final = 10.0
_MAX_TRIES_IN_PLACE: Final = 10

# The steps whose function runs here: a function may not use the steps that it belongs to.
_inside: ContextVar["tuple[HandlerSteps, CalledStep] | None"] = ContextVar(
    "forge_step", default=None
)


@dataclass(frozen=True, slots=True)
class StepOptions:
    """The options of ``ctx.step.using(...)``, checked."""

    key: object = None
    retry: Retry | None = None
    timeout_s: float | None = None
    errors: tuple[type[Exception], ...] = ()
    on_change: Literal["warn", "dead"] = "warn"
    tx: object = None


@dataclass(slots=True)
class _Blocked:
    """A sleep or wait that only the end of the run can go on from."""

    shown: str
    reply: "asyncio.Future[None]"
    wait: Wait | None
    wake_at: Instant | None
    steps: tuple[StepWrite, ...]


@dataclass(slots=True)
class HandlerSteps:
    """The calls of one run. Used by the handler's thread or loop alone. ``caller``: what
    ``ctx.step`` returned before."""

    port: StepPort
    names: StepNames = field(default_factory=StepNames)
    is_sync: bool = False
    caller: "StepCaller | None" = None
    open_wait: str | None = None
    undeclared: dict[str, str] = field(default_factory=dict[str, str])
    _running: set[str] = field(default_factory=set[str])
    _blocked: dict[str, _Blocked] = field(default_factory=dict[str, _Blocked])
    _parked_at: str | None = None

    # -- steps ------------------------------------------------------------------------------------

    def call(
        self,
        is_sync: bool,
        options: StepOptions,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Coroutine[Any, Any, Any]:
        """Begin a step: its identity is fixed now. The coroutine runs it."""
        self.check("ctx.step", is_sync=is_sync)
        if not callable(function):
            raise BadStep(f"step {name!r} needs a function to call, not {function!r}")
        step = self.names.call(name, options.key, is_sync=is_sync)
        return self._step(step, options, function, args, kwargs)

    async def _step(
        self,
        step: CalledStep,
        options: StepOptions,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        returned = False
        self.enter(step)
        try:
            described = step_function(function)
            record = await self.port.find(step.identity)
            mark = fingerprint(args, kwargs)
            if record is None:
                await self.port.check_committed()
                self.port.check_room(step.identity, 0)
                began_at = self.port.now()
                try:
                    value = await self._tried(step, options, described, function, args, kwargs)
                except options.errors as error:
                    data = stored_error(error, options.errors)
                    write = self._write(step, StepKind.ERROR, data, began_at, mark)
                    record = await self._store(step, options, write)
                    returned = True
                    if record is None:
                        raise
                else:
                    data, value = described.stored(value, step.shown)
                    write = self._write(step, StepKind.STEP, data, began_at, mark)
                    record = await self._store(step, options, write)
                    returned = True
                    if record is None:
                        return value
            else:
                self._check_unchanged(step, options, record, mark)
            returned = True
            return self._stored_value(step, options, described, record)
        finally:
            self.leave(step, returned=returned)

    def _write(
        self, step: CalledStep, kind: StepKind, value: bytes, began_at: Instant, mark: int | None
    ) -> StepWrite:
        claim = self.port.claim
        return StepWrite(
            claim.key, claim.epoch, step.identity, kind, began_at, self.port.now(), value, mark
        )

    async def _store(
        self, step: CalledStep, options: StepOptions, write: StepWrite
    ) -> StepRecord | None:
        self.port.check_room(step.identity, len(write.value or b""))
        if options.tx is None:
            return await self.port.store(write)
        await self.port.store_in(options.tx, write, step.shown)
        return None

    def _stored_value(
        self,
        step: CalledStep,
        options: StepOptions,
        described: StepFunction,
        record: StepRecord,
    ) -> Any:
        if record.kind is StepKind.STEP:
            return described.read(record.value, step.shown)
        if record.kind is StepKind.ERROR:
            raise error_of(record.value, options.errors, step.shown)
        raise self.other_kind(step, record, "a step")

    def other_kind(self, step: CalledStep, record: StepRecord, what: str) -> BadStep:
        """The error of a call whose identity is stored as something else."""
        return BadStep(
            f"{step.shown!r} is {what} in this version of the code and was stored as "
            f"{record.kind.value}: give it another name"
        )

    def _check_unchanged(
        self, step: CalledStep, options: StepOptions, record: StepRecord, mark: int | None
    ) -> None:
        kept = record.fingerprint
        if kept is None or mark is None or kept == mark:
            return
        text = (
            f"step {step.shown!r} is called with other arguments than those its stored value was "
            f"made with (fingerprints {kept:x} and {mark:x})"
        )
        if options.on_change == "dead":
            raise Dead(f"{text}, and on_change='dead' forbids to use that value")
        self.port.warn(f"{text}; the stored value is used")

    async def _tried(
        self,
        step: CalledStep,
        options: StepOptions,
        described: StepFunction,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """The value of the function, tried again in place as ``retry=`` says."""
        failures = 0
        while True:
            try:
                value = await self._called(step, options, described, function, args, kwargs)
            except (JobOutcome, *options.errors):
                raise
            except Exception as error:
                failures += 1
                delay_s = _delay_s(options.retry, error, failures)
                if delay_s is None or delay_s > MAX_WAIT_IN_PLACE_S:
                    self.undeclared[step.shown] = type(error).__name__
                    if delay_s is not None:
                        self.port.retry_later(error, delay_s)
                    raise
                await self.port.pause(delay_s)
                self.port.check_caller()
            else:
                self.undeclared.pop(step.shown, None)
                return value

    async def _called(
        self,
        step: CalledStep,
        options: StepOptions,
        described: StepFunction,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        outer = _inside.get()
        try:
            # Not before: a signal handler may raise between the call and the ``try``.
            _inside.set((self, step))
            if self.is_sync:
                return _called_here(step, function, args, kwargs)
            if options.tx is not None and not described.is_async:
                # It uses the caller's connection, which may belong to the caller's thread.
                return function(*args, **kwargs)
            if options.timeout_s is None:
                return await _awaited(described, function, args, kwargs)
            limit = asyncio.timeout(options.timeout_s)
            try:
                async with limit:
                    return await _awaited(described, function, args, kwargs)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise TimeoutError(
                    f"step {step.shown!r} did not end within {options.timeout_s:g} s"
                ) from None
        finally:
            _inside.set(outer)

    # -- calls of every kind ----------------------------------------------------------------------

    def check(self, what: str, *, is_sync: bool) -> None:
        """BadStep if the handler may not use its steps now. ``is_sync``: in the form for ``def``
        handlers."""
        if is_sync and not self.port.allows_sync:
            raise BadStep(f"{what}_sync is for def handlers: write `await {what}(...)` here")
        if not is_sync and not self.port.allows_async:
            raise BadStep(f"{what} is for async def handlers: write {what}_sync(...) here")
        self.is_sync = is_sync
        inside = _inside.get()
        if inside is not None and inside[0] is self:
            raise BadStep(
                f"{what} is called in the function of step {inside[1].shown!r}: steps do not nest. "
                "Return from that function first, and call the next step from the handler"
            )
        if self._parked_at is not None:
            raise BadStep(
                f"{what} is called although this run was told to end at {self._parked_at}: let the "
                "signal pass (catch Exception, not BaseException; no return_exceptions=True), and "
                "use no steps in finally blocks around a sleep or wait"
            )
        self.port.check_caller()

    def enter(self, step: CalledStep) -> None:
        """A call has started."""
        self.port.check_caller()
        self._running.add(step.identity)

    def leave(self, step: CalledStep, *, returned: bool) -> None:
        """A call has ended."""
        self.names.close(step, returned=returned)
        self._running.discard(step.identity)
        if self._blocked:
            self._park_soon()

    async def block(
        self,
        step: CalledStep,
        shown: str,
        *,
        wait: Wait | None,
        wake_at: Instant | None,
        steps: tuple[StepWrite, ...],
    ) -> None:
        """Wait for the end of this run: raises Suspended as soon as no step runs."""
        await self.port.check_committed()
        if self.is_sync:
            self._parked_at = shown
            self.port.park(wait, wake_at, steps, shown)
            raise Suspended
        self._running.discard(step.identity)
        reply = asyncio.get_running_loop().create_future()
        self._blocked[step.identity] = _Blocked(shown, reply, wait, wake_at, steps)
        self._park_soon()
        try:
            await reply
        finally:
            del self._blocked[step.identity]

    def _park_soon(self) -> None:
        # Two turns of the loop: calls of the same asyncio.gather start in the next one.
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._park_if_idle)

    def _park_if_idle(self) -> None:
        """Park if nothing but sleeps and a wait is open."""
        blocked = list(self._blocked.values())
        if not blocked or self._running or self._parked_at is not None:
            return
        self._parked_at = " and ".join(sorted(one.shown for one in blocked))
        wakes = [one.wake_at for one in blocked if one.wake_at is not None]
        wait = next((one.wait for one in blocked if one.wait is not None), None)
        steps = tuple(write for one in blocked for write in one.steps)
        self.port.park(wait, min(wakes, default=None), steps, self._parked_at)
        for one in blocked:
            if not one.reply.done():
                one.reply.set_exception(Suspended())


def _called_here(
    step: CalledStep, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    value = function(*args, **kwargs)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise BadStep(
            f"step {step.shown!r}: {function!r} is a coroutine function, and this handler is no "
            "coroutine: make the handler async def, or use a plain function"
        )
    return value


async def _awaited(
    described: StepFunction,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    if described.is_async:
        return await function(*args, **kwargs)
    value = await call_in_thread(function, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def _delay_s(retry: Retry | None, error: Exception, failures: int) -> float | None:
    """The delay before the next try; None if there is none."""
    if retry is None or not retry.allows(error) or isinstance(error, BadStep):
        return None
    steps = retry.backoff.steps_s
    if failures > (len(steps) if steps else _MAX_TRIES_IN_PLACE - 1):
        return None
    return retry.backoff.delay_s(failures)
