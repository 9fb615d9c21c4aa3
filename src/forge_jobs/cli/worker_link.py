"""A worker's line to its parent: up, beats, and the wish to drain.

Lives on the I/O thread, so that a job that blocks its own loop does not look like a dead worker,
and a dead parent is noticed all the same.
"""

import asyncio
import json
import os
import socket
from collections.abc import Callable
from typing import Final

from forge_jobs.kit.clock import Clock

_BEAT_S: Final = 1.0
_BEATS_PER_LEASE: Final = 5


class ParentLine:
    """The worker's end of the control socket."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)

    def refuse(self, why: str) -> None:
        """This worker can never start; the parent shows why and does not try again."""
        self._say({"refused": why})

    def up(self, host_id: str) -> None:
        """This worker serves."""
        self._say({"up": host_id})

    def close(self) -> None:
        """The last word was said."""
        self._socket.close()

    async def listen(self, on_drain: Callable[[bool], None]) -> None:
        """Call ``on_drain(orphaned)`` when the parent says so or is gone. On the I/O thread."""
        # A copy: a refusal is said after nobody listens any more, and closing takes this end along.
        heard = self._socket.dup()
        heard.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=heard)
        try:
            while line := await reader.readline():
                if line.strip() == b"drain":
                    on_drain(False)
            on_drain(True)
        finally:
            writer.close()

    async def heartbeat(self, host_id: Callable[[], str], lease_s: float, clock: Clock) -> None:
        """Tell the parent for ever that this process still runs, and under which name: it has
        another one after it was declared dead. On the I/O thread."""
        while True:
            self._say({"beat": host_id()})
            await clock.sleep(min(_BEAT_S, lease_s / _BEATS_PER_LEASE))

    def _say(self, words: dict[str, object]) -> None:
        # Never waits: a parent that does not read is stopped or gone, and ``listen`` will know.
        try:
            self._socket.send(json.dumps(words).encode() + b"\n", socket.MSG_DONTWAIT)
        except OSError:
            return
