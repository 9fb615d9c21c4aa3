"""How a row-wise store runs its transactions; every part of the store is given one of these."""

from contextlib import AbstractContextManager
from typing import Protocol

from forge_jobs.core.instant import Instant

from .tables import Tables
from .transaction import Transaction


class Storage(Protocol):
    """Tables with transactions. Both kinds have one store time."""

    @property
    def tables(self) -> Tables: ...

    def write(self) -> AbstractContextManager[Transaction]:
        """A write transaction. Subscriptions are notified after its commit."""
        ...

    def read(self) -> AbstractContextManager[Instant]:
        """A read transaction; gives the store time."""
        ...
