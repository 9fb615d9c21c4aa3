"""Inline mode: jobs run before ``enqueue`` returns, in the real engine; for users' tests."""

import asyncio
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from forge_jobs.app import Forge
from forge_jobs.core.errors import JobFailed, Refused
from forge_jobs.core.job import Enqueued
from forge_jobs.core.status import JobStatus

_NOT_DONE = frozenset({JobStatus.FAILED, JobStatus.DEAD, JobStatus.CANCELLED})
_draining: ContextVar[bool] = ContextVar("forge_draining", default=False)


@contextmanager
def inline(forge: Forge, *, raises: bool = True) -> Generator[None, None, None]:
    """Within this block, ``enqueue`` runs the job, and the jobs it enqueues, before it returns.

    Jobs are stored, claimed and finished as by a worker; one that is due later stays scheduled.
    With ``raises`` a job that did not succeed raises JobFailed from the call that enqueued it.
    """
    if forge.client.inline_mode is not None:
        raise Refused("inline mode is on already for this Forge")
    forge.client.inline_mode = _DrainAtOnce(forge, raises=raises)
    try:
        yield
    finally:
        forge.client.inline_mode = None


class _DrainAtOnce:
    """Drains the store after every enqueue."""

    def __init__(self, forge: Forge, *, raises: bool) -> None:
        self._forge = forge
        self._raises = raises

    def run(self, stored: Sequence[Enqueued]) -> None:
        if _draining.get():
            return  # enqueued by a running job: the drain that runs that job runs this one too
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(self._drain(stored))
            return
        failure: list[BaseException] = []

        def drain_in_thread() -> None:
            try:
                asyncio.run(self._drain(stored))
            except BaseException as error:
                failure.append(error)

        # The event loop of this thread is busy with the caller: drain on another thread.
        thread = threading.Thread(target=drain_in_thread, name="forge-inline")
        thread.start()
        thread.join()
        if failure:
            raise failure[0]

    async def arun(self, stored: Sequence[Enqueued]) -> None:
        if not _draining.get():
            await self._drain(stored)

    async def _drain(self, stored: Sequence[Enqueued]) -> None:
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
            if peek is not None and peek.status in _NOT_DONE:
                raise JobFailed(job_id, peek.status, peek.error)
