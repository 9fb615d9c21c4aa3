"""Inline mode: jobs run before ``enqueue`` returns, in the real engine; for users' tests."""

import asyncio
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from forge_jobs.app import Forge
from forge_jobs.client.job import job_failed
from forge_jobs.core.errors import Refused
from forge_jobs.core.job import Enqueued
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.running.context import Context
from forge_jobs.kit.running_loop import has_running_loop

_NOT_DONE = frozenset({JobStatus.FAILED, JobStatus.DEAD, JobStatus.CANCELLED})
_draining: ContextVar[bool] = ContextVar("forge_draining", default=False)
_in_handler: ContextVar[bool] = ContextVar("forge_in_handler", default=False)


@contextmanager
def inline(forge: Forge, *, raises: bool = True) -> Generator[None, None, None]:
    """Within this block, ``enqueue`` runs the job, and the jobs it enqueues, before it returns.

    Jobs are stored, claimed and finished as by a worker; one that is due later stays scheduled.
    With ``raises`` the exception of a job that did not succeed is raised from the call that
    enqueued it: the handler's own one, with a note that names the job. It is JobFailed, with the
    traceback as its cause, if the handler ran in a child process, returned its failure, or was
    cancelled.

    ``tx=`` is Refused: the job can run only after the commit. Call ``forge.drain()`` then.

    >>> with testing.inline(forge):
    ...     job = send.enqueue("a@b.c")
    >>> job.result(timeout=10)
    'hi to a@b.c'
    """
    if forge.client.inline_mode is not None:
        raise Refused("inline mode is on already for this Forge")
    mode = _DrainAtOnce(forge, raises=raises)
    forge.client.inline_mode = mode
    forge.registry.surround(mode.keep_error)
    try:
        yield
    finally:
        forge.registry.stop_surrounding(mode.keep_error)
        forge.client.inline_mode = None


class _DrainAtOnce:
    """Drains the store after every enqueue."""

    def __init__(self, forge: Forge, *, raises: bool) -> None:
        self._forge = forge
        self._raises = raises
        self._errors: dict[str, Exception] = {}

    def run(self, stored: Sequence[Enqueued]) -> None:
        if _draining.get():
            return  # enqueued by a running job: the drain that runs that job runs this one too
        if not has_running_loop():
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

    def check_transaction(self) -> None:
        if not _in_handler.get():
            raise Refused(
                "inline mode cannot run a job that is enqueued with tx=: it exists only after the "
                "commit. Enqueue it outside testing.inline(), commit, then call forge.drain()"
            )

    def keep_error(self, context: Context) -> Generator[None, None, None]:
        """The hook around every run: keeps the exception of the handler."""
        token = _in_handler.set(True)
        try:
            yield
        except Exception as error:
            self._errors[context.job.id] = error
            raise
        finally:
            _in_handler.reset(token)

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
            if peek is None or peek.status not in _NOT_DONE:
                continue
            record = await store.jobs.get(job_id)
            error = self._errors.pop(job_id, None)
            if error is None or peek.status is JobStatus.CANCELLED:
                raise job_failed(job_id, peek, record)
            if record is not None:
                error.add_note(
                    f"in job {job_id} of kind {record.kind}, attempt {record.attempts} of "
                    f"{record.max_attempts}, which is {peek.status} now"
                )
            raise error
