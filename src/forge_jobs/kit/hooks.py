"""Hooks: generators that run around a call. Each runs up to its ``yield``, then the call is made,
then the rest of the generator runs.

A hook can replace the argument (by the value it yields), read the result (the value of ``yield``)
and refuse the call by raising before its ``yield``. A hook cannot undo a call that was made: an
error after the ``yield`` is logged and not raised.
"""

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Generic, TypeAlias, TypeVar

_LOG = logging.getLogger("forge_jobs.hooks")

T = TypeVar("T")
R = TypeVar("R")

Hook: TypeAlias = Callable[[T], Generator[T, R, object]]


class Hooks(Generic[T, R]):
    """Hooks in the order of registration; the first one is the outermost."""

    def __init__(self) -> None:
        self.hooks: list[Hook[T, R]] = []

    def __bool__(self) -> bool:
        return bool(self.hooks)

    def call(self, items: Sequence[T], function: Callable[[Sequence[T]], list[R]]) -> list[R]:
        """Call ``function`` with the items as the hooks changed them. It must return one result
        per item, in the same order."""
        entered, changed = self._enter(items)
        try:
            results = function(changed)
        except BaseException as error:
            _fail(entered, error)
            raise
        _resume(entered, results)
        return results

    async def acall(
        self, items: Sequence[T], function: Callable[[Sequence[T]], Awaitable[list[R]]]
    ) -> list[R]:
        """``call`` for a coroutine function."""
        entered, changed = self._enter(items)
        try:
            results = await function(changed)
        except BaseException as error:
            _fail(entered, error)
            raise
        _resume(entered, results)
        return results

    def prepared(self, item: T) -> T:
        """The item as the hooks change it, for a call that is made elsewhere: each hook is closed
        at its ``yield`` and gets no result."""
        entered, [changed] = self._enter([item])
        for hooks in entered:
            for hook in reversed(hooks):
                hook.close()
        return changed

    def _enter(self, items: Sequence[T]) -> tuple[list[list[Generator[T, R, object]]], list[T]]:
        """Run all hooks up to their ``yield``: the suspended generators of each item, and the items
        as they changed them."""
        entered: list[list[Generator[T, R, object]]] = []
        changed: list[T] = []
        try:
            for item in items:
                hooks: list[Generator[T, R, object]] = []
                entered.append(hooks)
                for hook in self.hooks:
                    generator = hook(item)
                    item = _first(generator)
                    hooks.append(generator)
                changed.append(item)
        except BaseException as error:
            _fail(entered, error)
            raise
        return entered, changed


def _first(generator: Generator[T, R, object]) -> T:
    try:
        return next(generator)
    except StopIteration:
        raise RuntimeError("a hook ended without a yield: write `yield job` in it once") from None


def _resume(entered: Sequence[Sequence[Generator[T, R, object]]], results: Sequence[R]) -> None:
    for hooks, result in zip(entered, results, strict=True):
        for hook in reversed(hooks):
            try:
                hook.send(result)
            except StopIteration:
                pass
            except Exception:
                _LOG.exception("a hook failed after the call it surrounds; the call is not undone")
            else:
                hook.close()
                _LOG.error("a hook yielded twice: everything after the second yield is skipped")


def _fail(entered: Sequence[Sequence[Generator[T, R, object]]], error: BaseException) -> None:
    for hooks in entered:
        for hook in reversed(hooks):
            try:
                hook.throw(error)
            except StopIteration:
                pass
            except BaseException as raised:
                if raised is not error:
                    _LOG.warning("a hook failed while it handled an error", exc_info=raised)
            else:
                hook.close()
