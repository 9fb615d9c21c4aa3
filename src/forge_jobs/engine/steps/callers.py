"""The typed callers behind ``ctx.step`` and ``ctx.step_sync``."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

from forge_jobs.core.errors import BadOption, BadStep
from forge_jobs.core.instant import Duration, seconds
from forge_jobs.core.retry import Retry

from .handler_steps import HandlerSteps, StepOptions
from .values import name_of

P = ParamSpec("P")
R = TypeVar("R")
_NO_OPTIONS = StepOptions()


class StepKeywords(TypedDict, total=False):
    """Options of a step.

    ``key`` tells calls of one name apart, instead of their number: give one to calls that are open
    at the same time. ``retry`` tries the function again: delays up to 10 s are waited for in place,
    a longer one ends the run as a failed attempt with that delay. ``timeout`` is that of one try.
    ``errors`` are stored as results and raised again by later runs. ``on_change="dead"`` ends the
    job if a stored step is called with other arguments; ``"warn"`` logs it. ``tx`` is the
    connection or session with the open transaction that the function writes to: the step is stored
    in it, and you commit it; a plain function is then called in place and not in a thread.
    """

    key: str | int
    retry: Retry
    timeout: Duration
    errors: tuple[type[Exception], ...]
    on_change: Literal["warn", "dead"]
    tx: object


class StepCaller:
    """``ctx.step``: runs a function once in the life of a job.

    ``await ctx.step("charge", charge, order)``, or ``await ctx.step(charge, order)`` for the name
    of the function. The call fixes the step's identity; awaiting it runs the function, or returns
    what an earlier run stored. A plain function runs in a thread.
    """

    __slots__ = ("_options", "_steps")

    def __init__(self, steps: HandlerSteps, options: StepOptions = _NO_OPTIONS) -> None:
        self._steps = steps
        self._options = options

    @overload
    def __call__(
        self,
        name: str,
        function: Callable[P, Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def __call__(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def __call__(
        self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...

    def __call__(self, first: Any, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        name, function, args = named(first, args)
        return self._steps.call(False, self._options, name, function, args, kwargs)

    def using(self, **options: Unpack[StepKeywords]) -> "StepCaller":
        """The same with options: ``ctx.step.using(key=url)("fetch", fetch, url)``."""
        return StepCaller(self._steps, _with(self._options, options))


class SyncStepCaller:
    """``ctx.step_sync``: ``ctx.step`` for ``def`` handlers, which returns the value itself."""

    __slots__ = ("_options", "_steps")

    def __init__(self, steps: HandlerSteps, options: StepOptions = _NO_OPTIONS) -> None:
        self._steps = steps
        self._options = options

    @overload
    def __call__(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    def __call__(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def __call__(self, first: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self._options.timeout_s is not None:
            raise BadOption(
                "ctx.step_sync.using(timeout=...): a plain function cannot be interrupted; give "
                "the limit to what it calls, or make the handler async def"
            )
        name, function, args = named(first, args)
        return run_blocking(self._steps.call(True, self._options, name, function, args, kwargs))

    def using(self, **options: Unpack[StepKeywords]) -> "SyncStepCaller":
        """The same with options, which are those of ``ctx.step.using`` without ``timeout``."""
        return SyncStepCaller(self._steps, _with(self._options, options))


def named(first: Any, args: tuple[Any, ...]) -> tuple[str, Any, tuple[Any, ...]]:
    """Name, function and arguments of a call with or without a name."""
    if not isinstance(first, str):
        return name_of(first), first, args
    if not args:
        raise BadStep(f"ctx.step({first!r}) has no function: ctx.step({first!r}, function, ...)")
    return first, args[0], args[1:]


def run_blocking(work: Coroutine[Any, Any, R]) -> R:
    """The value of a coroutine that blocks instead of suspending itself."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise AssertionError("a coroutine of a def handler was suspended")


def _with(options: StepOptions, given: StepKeywords) -> StepOptions:
    known = {"key", "retry", "timeout", "errors", "on_change", "tx"}
    unknown = sorted(set(given) - known)
    if unknown:
        raise BadOption(
            f"ctx.step.using({unknown[0]}=...) is no option of a step: use "
            f"{', '.join(sorted(known))}"
        )
    changes: dict[str, Any] = {name: value for name, value in given.items() if name != "timeout"}
    if "timeout" in given:
        changes["timeout_s"] = seconds(given["timeout"], field="timeout")
    made = replace(options, **changes)
    if not isinstance(made.errors, tuple) or not all(map(_is_error, made.errors)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadOption(
            f"ctx.step.using(errors={made.errors!r}) must be a tuple of classes of exceptions"
        )
    if made.errors and made.tx is not None:
        raise BadOption(
            "ctx.step.using(errors=..., tx=...): an error that leaves the block of a transaction "
            "rolls it back, and the stored error with it: leave errors= out"
        )
    if made.on_change not in ("warn", "dead"):
        raise BadOption(f"ctx.step.using(on_change={made.on_change!r}) must be 'warn' or 'dead'")
    if made.retry is not None and not isinstance(made.retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadOption(f"ctx.step.using(retry={made.retry!r}) must be a Retry(...)")
    return made


def _is_error(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, Exception)
