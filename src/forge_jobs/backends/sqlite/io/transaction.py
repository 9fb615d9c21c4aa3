"""One write transaction: its present, statements, entries in the books, and whom to wake after."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from forge_jobs.backends.sqlite.counters import SQL, Counters, Execute
from forge_jobs.core.instant import Instant

_MARKS: Final = SQL["marks"]
_UNFOLDED: Final = SQL["unfolded"]
_INTO_LINE: Final = SQL["into_line"]
_SET_FOLDED: Final = SQL["set_folded"]
_RAISE_CONTROL: Final = SQL["raise_control"]
_groups_of = msgspec.json.Decoder(list[tuple[str, str, str, int, int]]).decode


class Tx:
    """What an operation gets to work with.

    An operation that changes or removes jobs calls ``roll_up`` first. A single enqueue writes
    neither the counters nor the place in line of its job, which saves two pages per enqueue; the
    next operation that needs them writes them.
    """

    __slots__ = (
        "_folded_key", "_operated", "_top", "afterwards", "books", "execute", "folded", "line",
        "now", "tag", "unsettled", "woken",
    )  # fmt: skip

    def __init__(self, execute: Execute, now: Instant, tag: int) -> None:
        self.execute = execute
        self.now = now
        self.tag = tag
        self.books = Counters(now)
        self.woken: set[str] = set()
        self.afterwards: list[Callable[[], object]] = []
        # Lots in which a job may be able to go on because of what happened here.
        self.unsettled: dict[str, None] = {}
        self.folded = False
        self.line = 0
        self._folded_key = -1
        self._top = -1
        self._operated = False

    @property
    def operated(self) -> bool:
        return self._operated

    def row(self, statement: str, values: tuple[object, ...] = ()) -> Any:
        """The first row of an answer, or None."""
        return self.execute(statement, values).fetchone()

    def top(self) -> int:
        """The highest key that was ever given out."""
        if self._top < 0:
            self._folded_key, self._top = self.row(_MARKS)
        return self._top

    def given(self, key: int) -> None:
        """Keys up to this one are in use now."""
        self._top = key

    def seen(self, folded_key: int, top: int) -> None:
        """What ``top`` would ask for, when another statement has told it already."""
        if self._top < 0:
            self._folded_key, self._top = folded_key, top

    def roll_up(self) -> None:
        """Bring jobs that were only enqueued so far into the books, and in line."""
        if self.folded:
            return
        self.folded = True
        if self.top() > self._folded_key:
            (groups,) = self.row(_UNFOLDED, (self._folded_key,))
            for queue, kind, status, minute, jobs in _groups_of(groups):
                self.books.entered(queue, kind, status, jobs, minute)
            self.execute(_INTO_LINE, (self._folded_key,))

    def operate(self) -> None:
        """An operator changed something: every process looks again."""
        if not self._operated:
            self._operated = True
            self.execute(_RAISE_CONTROL)

    def settle(self) -> None:
        """Let jobs go on that waited for those that ended or moved here."""
        if self.unsettled:
            from forge_jobs.backends.sqlite.limit_buckets import settle_limits

            settle_limits(self)

    def finish(self) -> None:
        """The last statements before the commit."""
        self.settle()
        if self.folded and self._top > self._folded_key:
            self.execute(_SET_FOLDED, (self._top,))
        self.write_books()

    def write_books(self) -> None:
        """Bring the entries so far into the tables."""
        books, self.books = self.books, Counters(self.now)
        self.line = books.write(self.execute)
