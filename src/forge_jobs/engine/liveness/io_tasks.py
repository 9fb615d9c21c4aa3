"""Runs coroutines of a worker on the I/O port, and waits for their end from the job loop."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeAlias

from forge_jobs.engine.running.job_loop import JobLoop
from forge_jobs.kit.io_thread import IoPort

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class IoTasks:
    """Starts coroutines there and knows when they have really ended.

    A cancelled future of another thread says nothing about its coroutine, which may still be
    closing a subscription.
    """

    def __init__(self, io: IoPort, job_loop: JobLoop) -> None:
        self._io = io
        self._job_loop = job_loop
        self._running = 0
        self._all_done = asyncio.Event()
        self._tasks: list[Future[None] | asyncio.Task[None]] = []

    def spawn(self, work: Work) -> None:
        """Run ``work`` on the I/O port until it ends or is cancelled."""
        self._running += 1
        self._tasks.append(self._io.spawn(lambda: self._tracked(work)))

    def cancel(self) -> None:
        """Cancel all of them."""
        for task in self._tasks:
            task.cancel()

    async def wait(self) -> None:
        """Wait until the last one has ended."""
        if self._running:
            await self._all_done.wait()

    async def _tracked(self, work: Work) -> None:
        try:
            await work()
        finally:
            self._job_loop.post(self._one_done)

    def _one_done(self) -> None:
        self._running -= 1
        if self._running == 0:
            self._all_done.set()
