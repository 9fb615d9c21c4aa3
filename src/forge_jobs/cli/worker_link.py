"""``WorkerLink``: a worker process's connection to its parent: start, heartbeats, drain requests.

It runs on the I/O thread: a handler that blocks the main loop then does not stop the heartbeats to
the parent, and the death of the parent is still noticed.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable
from typing import Final

from forge_jobs.kit.clock import Clock

_MAX_HEARTBEAT_S: Final = 1.0
_HEARTBEATS_PER_LEASE: Final = 5


class WorkerLink:
    """The worker's end of the control socket."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)

    def refuse(self, why: str) -> None:
        """Report that this worker can never start. The parent logs why and does not retry."""
        self._send({"refused": why})

    def report_started(self, host_id: str) -> None:
        """Report that this worker serves its queues."""
        self._send({"started": host_id})

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    async def listen(self, on_drain: Callable[[bool], None]) -> None:
        """Call ``on_drain(orphaned)`` when the parent requests a drain or is dead. Runs on the I/O
        thread."""
        # A duplicate: a refusal may be sent after this reader has closed its descriptor.
        duplicate = self._socket.dup()
        duplicate.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=duplicate)
        try:
            # Reset: the parent was killed before it had read our last message.
            with contextlib.suppress(ConnectionError):
                while line := await reader.readline():
                    if line.strip() == b"drain":
                        on_drain(False)
            on_drain(True)
        finally:
            writer.close()

    async def heartbeat(self, host_id: Callable[[], str], lease_s: float, clock: Clock) -> None:
        """Send heartbeats to the parent until cancelled. Runs on the I/O thread.

        Each holds the current host id: a process that was declared dead registers under a new one.
        """
        while True:
            self._send({"heartbeat": host_id()})
            await clock.sleep(min(_MAX_HEARTBEAT_S, lease_s / _HEARTBEATS_PER_LEASE))

    def _send(self, message: dict[str, object]) -> None:
        # Never blocks: a parent that does not read is stopped or dead, and ``listen`` notices that.
        try:
            self._socket.send(json.dumps(message).encode() + b"\n", socket.MSG_DONTWAIT)
        except OSError:
            return
