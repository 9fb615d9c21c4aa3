"""``@forge.task``: with or without options, typed by the function it is put on.

A type checker sees the arguments of ``enqueue`` as those of the function. A Context that comes
first is left out of them; one that comes last, or by keyword, cannot be left out by today's type
system, so the arguments of such a task are only checked when it is enqueued.
"""

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
    """Fits no parameter but one that takes everything."""


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
    """Turns functions into tasks; calling it with options gives a decorator with these options."""

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
        # Annotations of a nested function may name what only its surroundings know.
        scope = dict(sys._getframe(1).f_locals) if nested else None  # pyright: ignore[reportPrivateUsage]
        return self._register(function, merged, scope)
