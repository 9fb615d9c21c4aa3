"""``with forge.joined(session):`` the transaction that the enqueues of a block are part of.

The block belongs to the thread or task that entered it, and to what is started from there while it
is open: a context variable holds the innermost one.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from forge_jobs.core.errors import BadOption, Refused

T = TypeVar("T")
_INNERMOST: Final[ContextVar["JoinedBlock[Any] | None"]] = ContextVar("joined", default=None)


class JoinedBlock(Generic[T]):
    """One ``with`` block. ``owner`` is what all enqueuers of one Forge have in common."""

    __slots__ = ("_is_open", "_outer", "_owner", "_token", "_transaction")

    def __init__(self, owner: object, transaction: T) -> None:
        if transaction is None:
            raise BadOption(
                "forge.joined(None) has no transaction to join: pass a connection or a session"
            )
        self._owner = owner
        self._transaction = transaction
        self._outer: JoinedBlock[Any] | None = None
        self._token: Token[JoinedBlock[Any] | None] | None = None
        self._is_open = False

    def __enter__(self) -> T:
        if self._is_open:
            raise Refused("this block is entered already: call forge.joined(...) for another one")
        self._outer = _INNERMOST.get()
        self._token = _INNERMOST.set(self)
        self._is_open = True
        return self._transaction

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_open = False
        token, self._token = self._token, None
        if token is None:
            return
        try:
            _INNERMOST.reset(token)
        except ValueError:
            if error is None:
                raise Refused(
                    "forge.joined(...) was left in another context than it was entered in, so that "
                    "nothing in between was joined: enter it in the function that enqueues, or in "
                    "an `async def` dependency (web frameworks run plain `def` ones elsewhere)"
                ) from None

    async def __aenter__(self) -> T:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def transaction_of(self, owner: object) -> object:
        """The transaction of the innermost open block of ``owner``, from here outwards."""
        block: JoinedBlock[Any] | None = self
        while block is not None:
            if block._is_open and block._owner is owner:
                return block._transaction
            block = block._outer
        return None


@contextmanager
def not_joined() -> Generator[None]:
    """Within this block nothing is joined: for starting what runs other people's handlers."""
    token = _INNERMOST.set(None)
    try:
        yield
    finally:
        _INNERMOST.reset(token)


def joined_transaction(owner: object) -> object:
    """The transaction that the enqueues of ``owner`` join here; None outside of a block."""
    innermost = _INNERMOST.get()
    return None if innermost is None else innermost.transaction_of(owner)
