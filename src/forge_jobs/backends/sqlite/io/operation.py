"""Write requests: operations that wait for the writer, and how their callers get the result."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from .transaction import Tx

T = TypeVar("T")
Operation: TypeAlias = Callable[[Tx], T]


class Batchable(ABC):
    """An operation that can run as one batch with others of its type."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, tx: Tx) -> Any:
        """Run this operation alone."""

    @abstractmethod
    def run_batch(self, tx: Tx, calls: Sequence[Any]) -> Sequence[Any]:
        """Run all these operations, the first of which is this one; one result per operation."""


class RunAlone(Exception):
    """Raised by an operation to be run once more, alone, in a new transaction."""


class WriteRequest:
    """One operation. Without a loop, its caller waits on its own thread until ``done``."""

    __slots__ = ("done", "durable", "error", "future", "loop", "operation", "value")

    def __init__(self, operation: Operation[Any], durable: bool) -> None:
        self.operation = operation
        self.durable = durable
        self.value: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[Any] | None = None

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.done = True


def fail(group: Iterable[WriteRequest], error: BaseException) -> None:
    """Fail all requests of a group that are not done; none of them had an effect."""
    for request in group:
        if not request.done:
            request.fail(error)


def deliver(group: Iterable[WriteRequest]) -> None:
    """Resolve the futures of finished requests, with one call into each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[WriteRequest]] = {}
    for request in group:
        if request.loop is not None:
            loops.setdefault(request.loop, []).append(request)
    for loop, done in loops.items():
        # RuntimeError: the loop is closed, so no caller waits on it.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, done)


def _resolve(done: list[WriteRequest]) -> None:
    for request in done:
        future = request.future
        if future is None or future.done():
            continue
        if request.error is not None:
            future.set_exception(request.error)
        else:
            future.set_result(request.value)
