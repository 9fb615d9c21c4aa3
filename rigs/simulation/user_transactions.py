"""The user's own transaction in a simulation: its writes and a step become one commit.

The connection is that of the process, so that the commit can be refused, lost, late or cut off by a
crash as every other call.
"""

from collections.abc import Callable
from typing import Protocol


class CommitCall(Protocol):
    """Sends a commit to the database; its effect happens at one instant, or never."""

    async def __call__(self, commit: Callable[[], None]) -> None: ...


class SimTransaction:
    """A transaction that the store joins by ``on_commit``. ``writes``: those of the user."""

    def __init__(self) -> None:
        self.writes: list[Callable[[], None]] = []
        self.send: CommitCall | None = None
        self._joined: list[Callable[[], object]] = []

    def on_commit(self, callback: Callable[[], object]) -> None:
        """The store joins."""
        self._joined.append(callback)

    async def commit(self) -> None:
        """Commit, if a step was stored in it. An error says that it was not, or may not have been,
        committed."""
        if self.send is not None:
            await self.send(self._apply)

    def _apply(self) -> None:
        # The store first: a lost claim takes the whole transaction with it.
        for callback in self._joined:
            callback()
        for write in self.writes:
            write()
