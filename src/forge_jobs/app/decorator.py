"""``@forge.task``: with or without options, typed by the decorated function.

A type checker sees the function's parameters as those of ``enqueue``. A Context that is the first
parameter is left out. Python's type system cannot leave out one that comes last or by keyword, so
the arguments of such a task are checked at run time only, when it is enqueued.
"""

import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import (
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypeVar,
    TypeVarTuple,
    Unpack,
    overload,
)

from forge_jobs.client.options import TaskOptions
from forge_jobs.client.task import AsyncTask, DefTask, Task
from forge_jobs.engine.running.context import Context

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Before = TypeVarTuple("Before")


class _Anything:
    """Matches no parameter except one that accepts any type."""


class _ContextByName(Protocol[R_co]):
    def __call__(self, *args: Any, ctx: Context, **kwargs: Any) -> R_co: ...


class Register(Protocol):
    """Makes and registers the task."""

    def __call__(
        self,
        function: Callable[..., Any],
        options: Mapping[str, Any],
        scope: Mapping[str, object] | None,
    ) -> Task[..., Any]: ...


class TaskDecorator:
    """Turns functions into tasks: ``@forge.task`` or ``@forge.task(queue="mail", ...)``.

    The options are those of ``TaskOptions``. The function may be ``def`` (it runs in a thread) or
    ``async def`` (it runs on the worker's event loop); a parameter annotated with Context gets the
    context of the run.

    >>> @forge.task(queue="mail", max_attempts=8, timeout="30s", retry=Retry(base="15s", max="1h"))
    ... async def deliver(to: str, ctx: Context) -> str:
    ...     return f"{ctx.job.kind} to {to}"
    """

    def __init__(self, register: Register, options: Mapping[str, Any]) -> None:
        self._register = register
        self._options = options

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, function: Callable[Concatenate[_Anything, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[_Anything, P], R], /) -> DefTask[..., R]: ...
    @overload
    def __call__(
        self, function: Callable[[Unpack[Before], Context], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[..., R]: ...
    @overload
    def __call__(self, function: Callable[[Unpack[Before], Context], R], /) -> DefTask[..., R]: ...
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> DefTask[P, R]: ...
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, function: _ContextByName[Coroutine[Any, Any, R]], /
    ) -> AsyncTask[..., R]: ...
    @overload
    def __call__(self, function: _ContextByName[R], /) -> DefTask[..., R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> DefTask[P, R]: ...
    @overload
    def __call__(self, /, **options: Unpack[TaskOptions]) -> "TaskDecorator": ...

    def __call__(self, function: Any = None, /, **options: Any) -> Any:
        """``@forge.task``, ``@forge.task()`` and ``@forge.task(queue="mail", …)``."""
        merged = {**self._options, **options}
        if function is None:
            return TaskDecorator(self._register, merged)
        nested = "<locals>" in getattr(function, "__qualname__", "")
        # Annotations of a nested function may name locals of the enclosing function.
        scope = dict(sys._getframe(1).f_locals) if nested else None  # pyright: ignore[reportPrivateUsage]
        return self._register(function, merged, scope)


class _LeftOut:
    """The default of an option in the shown signature: each may be left out."""

    def __repr__(self) -> str:
        return "..."


def _shown_signature() -> inspect.Signature:
    """The signature that ``help(forge.task)`` shows: every option by its name and type."""
    positional = inspect.Parameter.POSITIONAL_ONLY
    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=_LeftOut(), annotation=wanted
        )
        for name, wanted in TaskOptions.__annotations__.items()
    ]
    function = inspect.Parameter("function", positional, default=None)
    return inspect.Signature([inspect.Parameter("self", positional), function, *options])


_call: Any = TaskDecorator.__call__
_call.__signature__ = _shown_signature()
_call.__doc__ = f"{_call.__doc__}\n\n{inspect.getdoc(TaskOptions)}"
