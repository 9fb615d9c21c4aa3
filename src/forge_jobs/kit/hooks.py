"""Generators wrapped around a call: each runs up to its ``yield``, then the call, then the rest.

A hook may change what goes in (by what it yields), see what comes out (what ``yield`` gives), and
refuse by raising before the call. Once the call has happened nothing a hook does undoes it: an
error after the ``yield`` is logged and goes no further.
"""

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Generic, TypeAlias, TypeVar

_LOG = logging.getLogger("forge_jobs.hooks")

T = TypeVar("T")
R = TypeVar("R")

Hook: TypeAlias = Callable[[T], Generator[T, R, object]]


class Hooks(Generic[T, R]):
    """Hooks in the order of their registration: the first is the outermost."""

    def __init__(self) -> None:
        self.hooks: list[Hook[T, R]] = []

    def __bool__(self) -> bool:
        return bool(self.hooks)

    def call(self, items: Sequence[T], go: Callable[[Sequence[T]], list[R]]) -> list[R]:
        """Run ``go`` on what the hooks make of ``items``; the answers line up with them."""
        entered, changed = self._enter(items)
        try:
            answers = go(changed)
        except BaseException as error:
            _fail(entered, error)
            raise
        _resume(entered, answers)
        return answers

    async def acall(
        self, items: Sequence[T], go: Callable[[Sequence[T]], Awaitable[list[R]]]
    ) -> list[R]:
        """The same for a coroutine."""
        entered, changed = self._enter(items)
        try:
            answers = await go(changed)
        except BaseException as error:
            _fail(entered, error)
            raise
        _resume(entered, answers)
        return answers

    def prepared(self, item: T) -> T:
        """What the hooks make of an item that somebody else will take further: no hook gets to see
        an answer, each ends at its ``yield``."""
        entered, [changed] = self._enter([item])
        for hooks in entered:
            for hook in reversed(hooks):
                hook.close()
        return changed

    def _enter(self, items: Sequence[T]) -> tuple[list[list[Generator[T, R, object]]], list[T]]:
        entered: list[list[Generator[T, R, object]]] = []
        changed: list[T] = []
        try:
            for item in items:
                hooks: list[Generator[T, R, object]] = []
                entered.append(hooks)
                for hook in self.hooks:
                    running = hook(item)
                    item = _first(running)
                    hooks.append(running)
                changed.append(item)
        except BaseException as error:
            _fail(entered, error)
            raise
        return entered, changed


def _first(running: Generator[T, R, object]) -> T:
    try:
        return next(running)
    except StopIteration:
        raise RuntimeError("a hook ended without a yield: write `yield job` in it once") from None


def _resume(entered: Sequence[Sequence[Generator[T, R, object]]], answers: Sequence[R]) -> None:
    for hooks, answer in zip(entered, answers, strict=True):
        for hook in reversed(hooks):
            try:
                hook.send(answer)
            except StopIteration:
                pass
            except Exception:
                _LOG.exception("a hook failed after the call it surrounds; the call stands")
            else:
                hook.close()
                _LOG.error("a hook yielded twice: everything after the second yield is left out")


def _fail(entered: Sequence[Sequence[Generator[T, R, object]]], error: BaseException) -> None:
    for hooks in entered:
        for hook in reversed(hooks):
            try:
                hook.throw(error)
            except StopIteration:
                pass
            except BaseException as raised:
                if raised is not error:
                    _LOG.warning("a hook failed while it was told of an error", exc_info=raised)
            else:
                hook.close()
