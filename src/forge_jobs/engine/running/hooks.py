"""Hooks around the run of a job: ``forge.around_run``.

A hook is a generator function that takes the Context and yields once; the handler runs at the
``yield``. What the handler raises is raised there; what a hook raises is the outcome of the job, as
if the handler had raised it. Without hooks a handler is called directly.
"""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import (
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, TypeAlias, TypeVar

from forge_jobs.core.errors import BadOption

from .context import Context

RunHook: TypeAlias = Callable[[Context], Generator[None, None, None]]
AsyncRunHook: TypeAlias = Callable[[Context], AsyncGenerator[None, None]]
AnyRunHook: TypeAlias = RunHook | AsyncRunHook
Call: TypeAlias = Callable[[bytes, Callable[[], Context]], Any]
HookT = TypeVar("HookT", bound=AnyRunHook)


def check_run_hook(hook: object) -> None:
    """BadOption for anything but a generator function."""
    if not (inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook)):
        raise BadOption(
            f"around_run needs a function with a `yield` where the job runs; {hook!r} has none"
        )


def with_hooks(call: Call, hooks: Sequence[AnyRunHook], *, on_loop: bool) -> Call:
    """``call`` with the hooks around it, the first outermost.

    Hooks that are ``async def`` can only surround coroutines: plain functions run without them.
    """
    if on_loop:
        return functools.partial(_arun, call, tuple(map(_amanager, hooks)))
    plain = tuple(contextmanager(hook) for hook in hooks if inspect.isgeneratorfunction(hook))
    return functools.partial(_run, call, plain) if plain else call


def _run(
    call: Call, managers: Sequence[Any], data: bytes, make_context: Callable[[], Context]
) -> Any:
    context = make_context()
    with ExitStack() as stack:
        for manager in managers:
            stack.enter_context(manager(context))
        return call(data, lambda: context)


async def _arun(
    call: Call, managers: Sequence[Any], data: bytes, make_context: Callable[[], Context]
) -> Any:
    context = make_context()
    async with AsyncExitStack() as stack:
        for is_async, manager in managers:
            if is_async:
                await stack.enter_async_context(manager(context))
            else:
                stack.enter_context(manager(context))
        return await call(data, lambda: context)


def _amanager(hook: Any) -> tuple[bool, Any]:
    if inspect.isasyncgenfunction(hook):
        return True, asynccontextmanager(hook)
    return False, contextmanager(hook)
