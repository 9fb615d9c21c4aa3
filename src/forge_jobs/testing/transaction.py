"""``Transaction``: stands in for a database transaction in tests on ``memory://``."""

from collections.abc import Callable
from types import TracebackType


class Transaction:
    """Pass it as ``tx=`` where the application passes its own connection:

    >>> with testing.Transaction() as tx:
    ...     job = send.using(tx=tx).enqueue("a@b.c")
    ...     testing.refute_enqueued(forge, send)
    >>> jobs = testing.assert_enqueued(forge, send, {"to": "a@b.c"})

    Jobs exist once it commits: at the end of the block, or by ``commit``. An exception in the
    block, or ``rollback``, drops them. ``on_commit`` registers any other callback.
    """

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], object]] = []

    def on_commit(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` when this transaction commits."""
        self._callbacks.append(callback)

    def commit(self) -> None:
        """Run the callbacks, in order; another transaction begins."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def rollback(self) -> None:
        """Drop the callbacks; another transaction begins."""
        self._callbacks.clear()

    def __enter__(self) -> "Transaction":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.rollback()

    async def __aenter__(self) -> "Transaction":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)
