"""The counters of one transaction, written once at its end.

Jobs by state are changed in place, everything else is one appended entry (see ``roll_up``).
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from forge_jobs.backends.shared.rowwise.counters import TransactionCounters
from forge_jobs.backends.shared.sql_text import SqlText

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "counters.sql")
BREAKDOWNS_SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "breakdowns.sql")
Execute = Callable[..., Any]

_ADD_COUNTS: Final = SQL["add_counts"]
_ADD_ENTRY: Final = SQL["add_entry"]
_ADD_TAG_ENTRY: Final = BREAKDOWNS_SQL["add_tag_entry"]
_encode = msgspec.json.encode


class Counters(TransactionCounters):
    """The changes of one transaction, and the statements that write them."""

    __slots__ = ()

    def write(self, execute: Execute) -> int:
        """Write everything, with at most three statements. Returns the id of the entry, or 0."""
        counts = self.counts()
        if counts:
            execute(_ADD_COUNTS, (_encode(counts).decode(),))
        tag_parts = self.tag_parts()
        if tag_parts:
            execute(_ADD_TAG_ENTRY, (_encode(tag_parts).decode(),))
        minutes = self.minutes()
        if not minutes:
            return 0
        return execute(_ADD_ENTRY, (_encode(minutes).decode(),)).lastrowid
