"""Operations on their way through the writer, and how their callers hear of the end."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from .transaction import Tx

T = TypeVar("T")
Operation: TypeAlias = Callable[[Tx], T]


class Joint(ABC):
    """An operation that can be run together with others of its kind."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, tx: Tx) -> Any:
        """The answer to this call alone."""

    @abstractmethod
    def together(self, tx: Tx, calls: Sequence[Any]) -> Sequence[Any]:
        """The answers to all these calls, the first of which is this one."""


class Again(Exception):
    """An operation wants to be run once more, alone, in a fresh transaction."""


class Work:
    """One operation. Without a loop its caller waits on its own thread until ``done``."""

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


def fail(group: Iterable[Work], error: BaseException) -> None:
    """None of these happened."""
    for work in group:
        if not work.done:
            work.fail(error)


def deliver(group: Iterable[Work]) -> None:
    """One call into each waiting event loop, however many of its operations are done."""
    loops: dict[asyncio.AbstractEventLoop, list[Work]] = {}
    for work in group:
        if work.loop is not None:
            loops.setdefault(work.loop, []).append(work)
    for loop, done in loops.items():
        # A loop that is closed has nobody left to wait.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, done)


def _resolve(done: list[Work]) -> None:
    for work in done:
        future = work.future
        if future is None or future.done():
            continue
        if work.error is not None:
            future.set_exception(work.error)
        else:
            future.set_result(work.value)
