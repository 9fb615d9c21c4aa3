"""Calls blocking functions in daemon threads, for coroutines.

Not ``asyncio.to_thread``: its threads are joined when the loop and the interpreter end, so that a
call that never returns would keep a process alive.
"""

import asyncio
import contextlib
import contextvars
import os
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from .threads import start_thread

P = ParamSpec("P")
R = TypeVar("R")
_IDLE_S = 10.0
_idle: list[SimpleQueue[Callable[[], None]]] = []
# The threads of a process do not exist in its forks.
os.register_at_fork(after_in_child=_idle.clear)


async def call_in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The value of a call in a thread, with the caller's context variables. A cancelled caller
    stops waiting; the call itself goes on."""
    loop = asyncio.get_running_loop()
    reply: asyncio.Future[R] = loop.create_future()
    context = contextvars.copy_context()

    def call() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = context.run(function, *args, **kwargs)
        except BaseException as raised:
            error = raised
        # RuntimeError: the loop is closed, nobody waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_answer, reply, value, error)

    try:
        _idle.pop().put(call)
    except IndexError:
        start_thread(_serve, call, name="forge-call")
    return await reply


def _answer(reply: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if reply.done():
        return
    if error is None:
        reply.set_result(value)
    elif isinstance(error, StopIteration):
        # A future cannot hold it.
        reply.set_exception(RuntimeError("the function raised StopIteration"))
    else:
        reply.set_exception(error)


def _serve(call: Callable[[], None]) -> None:
    box: SimpleQueue[Callable[[], None]] = SimpleQueue()
    while True:
        call()
        del call
        _idle.append(box)
        try:
            call = box.get(timeout=_IDLE_S)
        except Empty:
            try:
                _idle.remove(box)
            except ValueError:
                # Taken at this very moment: its call arrives.
                call = box.get()
            else:
                return
