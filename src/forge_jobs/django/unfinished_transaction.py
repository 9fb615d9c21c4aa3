"""Transactions of tests: a TestCase puts one around each test, which is never committed."""

from collections.abc import Callable
from typing import Any

from .django_api import transaction


def in_user_transaction(connection: Any) -> bool:
    """Whether an ``atomic()`` of the application is open, apart from those of a TestCase."""
    return any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)


class JobCommit:
    """Stores jobs at the commit of a transaction, once, whoever says that it has committed: Django,
    ``captureOnCommitCallbacks`` or ``drain``."""

    def __init__(self, commit: Callable[[], object]) -> None:
        self._commit: Callable[[], object] | None = commit

    def __call__(self) -> None:
        commit, self._commit = self._commit, None
        if commit is not None:
            commit()


class DjangoTransaction:
    """The transaction of an alias, as a store in memory joins it."""

    def __init__(self, using: str) -> None:
        self._using = using

    def on_commit(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` at the commit; never after a rollback, also of a savepoint."""
        transaction.on_commit(JobCommit(callback), using=self._using)
