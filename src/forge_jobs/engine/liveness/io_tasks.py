"""The parts of a worker that run on the I/O port, and how they are ended from the job loop."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeAlias

from forge_jobs.engine.running.job_loop import JobLoop
from forge_jobs.kit.io_thread import IoPort

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class IoTasks:
    """Starts them there and knows when they have really ended.

    Cancelling a future of another thread says nothing about the coroutine behind it, which may
    still be closing a subscription.
    """

    def __init__(self, io: IoPort, job_loop: JobLoop) -> None:
        self._io = io
        self._job_loop = job_loop
        self._running = 0
        self._all_ended = asyncio.Event()
        self._parts: list[Future[None] | asyncio.Task[None]] = []

    def spawn(self, work: Work) -> None:
        """Run it there until it ends or is cancelled."""
        self._running += 1
        self._parts.append(self._io.spawn(lambda: self._tracked(work)))

    def cancel(self) -> None:
        """Tell all of them to end."""
        for part in self._parts:
            part.cancel()

    async def ended(self) -> None:
        """Until the last one has ended."""
        if self._running:
            await self._all_ended.wait()

    async def _tracked(self, work: Work) -> None:
        try:
            await work()
        finally:
            self._job_loop.post(self._one_ended)

    def _one_ended(self) -> None:
        self._running -= 1
        if self._running == 0:
            self._all_ended.set()
