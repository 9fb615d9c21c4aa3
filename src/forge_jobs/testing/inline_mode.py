"""Inline mode: whatever is enqueued runs before ``enqueue`` returns, with the real engine."""

import asyncio
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from forge_jobs.app import Forge
from forge_jobs.core.errors import JobFailed, Refused
from forge_jobs.core.job import Enqueued
from forge_jobs.core.status import JobStatus

_BAD = frozenset({JobStatus.FAILED, JobStatus.DEAD, JobStatus.CANCELLED})
_draining: ContextVar[bool] = ContextVar("forge_draining", default=False)


@contextmanager
def inline(forge: Forge, *, raises: bool = True) -> Generator[None, None, None]:
    """Within this block, jobs run as soon as they are enqueued, and so does what they enqueue.

    Jobs are stored, claimed and finished as ever; one that is due later stays scheduled. With
    ``raises`` a job that did not succeed raises JobFailed from the call that enqueued it.
    """
    if forge.client.inline_mode is not None:
        raise Refused("inline mode is on already for this Forge")
    forge.client.inline_mode = _InPlace(forge, raises=raises)
    try:
        yield
    finally:
        forge.client.inline_mode = None


class _InPlace:
    def __init__(self, forge: Forge, *, raises: bool) -> None:
        self._forge = forge
        self._raises = raises

    def run(self, stored: Sequence[Enqueued]) -> None:
        if _draining.get():
            return  # a running job enqueued it: the drain that runs that job takes it too
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(self._drained(stored))
            return
        failure: list[BaseException] = []

        def elsewhere() -> None:
            try:
                asyncio.run(self._drained(stored))
            except BaseException as error:
                failure.append(error)

        # The loop of this thread is busy with the caller, so another one does the work.
        thread = threading.Thread(target=elsewhere, name="forge-inline")
        thread.start()
        thread.join()
        if failure:
            raise failure[0]

    async def arun(self, stored: Sequence[Enqueued]) -> None:
        if not _draining.get():
            await self._drained(stored)

    async def _drained(self, stored: Sequence[Enqueued]) -> None:
        token = _draining.set(True)
        try:
            await self._forge.drain()
        finally:
            _draining.reset(token)
        if not self._raises:
            return
        store = await self._forge.aready()
        ids = [item.id for item in stored]
        for job_id, peek in zip(ids, await store.jobs.peek(ids), strict=True):
            if peek is not None and peek.status in _BAD:
                raise JobFailed(job_id, peek.status, peek.error)
