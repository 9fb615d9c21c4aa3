"""Stores a synchronous caller's job on its own thread, over a lent connection.

Each call is one statement, so that it is stored whole or not at all wherever a signal handler
raises. An error reply means that nothing was stored, unless it may have come after the commit: then
the error is Unknown, as after a lost connection.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from forge_jobs.core.errors import Unknown
from forge_jobs.core.instant import Instant

from .connection import error_mapping
from .connection.direct import DirectConnection, Reply, is_own
from .connection.server import Server
from .notify.notifier import Notifier

MAY_BE_STORED: Final = "the job may be stored"


def procedure_of(statement: str) -> str:
    """What a statement that stores jobs and notifies calls."""
    return f"{statement}_v1"


class DirectEnqueuer:
    """Stores one job, which may have a link to its parent but no other option, and notifies in the
    same statement or later."""

    def __init__(
        self, server: Server, notifier: Notifier, sql: Mapping[str, str], limit_s: float
    ) -> None:
        self._server = server
        self._notifier = notifier
        self._sql = sql
        self._limit_s = limit_s

    def store(
        self,
        lent: DirectConnection,
        queue: str,
        name: str,
        and_notify: str,
        values: Sequence[Any],
    ) -> tuple[int, Instant] | None:
        """The key and the time of the job; None if nothing was stored and ``enqueue`` has to. The
        caller holds the lock of ``lent``; ``values`` are those of the statement ``name``, which
        ``and_notify`` can replace."""
        if not lent.is_usable():
            return None
        pending = self._notifier.direct
        values = (self._server.store_clock.bind(), *values)
        text = pending.text(queue, lent.loop)
        if text is not None:
            name, values = and_notify, (self._server.address.channel, text, *values)
        try:
            texts = [None if value is None else str(value).encode() for value in values]
        except UnicodeEncodeError:
            return None
        if not lent.send(name, self._sql[name], texts):
            return None
        reply = self._reply(lent, name)
        if reply.error is not None:
            after = text is not None and error_mapping.may_follow_commit(
                reply.error, procedure_of(name)
            )
            if after or reply.complete:
                location = self._server.address.location
                raise Unknown(f"{location}: {reply.error}; {MAY_BE_STORED}") from reply.error
            return None
        if text is None:
            pending.add(queue, lent.loop)
        else:
            pending.sent()
        if self._notifier.listeners():
            lent.loop.call_soon_threadsafe(self._notifier.notify_local, (queue,))
        key, at = (int(value or 0) for value in reply.row)
        return key, at

    def _reply(self, lent: DirectConnection, name: str) -> Reply:
        try:
            return lent.receive(name, self._limit_s)
        except OSError as error:
            if not is_own(error):
                raise
            raise error_mapping.translated(
                error, location=self._server.address.location, may_have_committed=True
            ) from error
