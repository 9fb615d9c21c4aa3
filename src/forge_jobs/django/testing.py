"""Tests of projects: ``ForgeTestCase``, ``ForgeTransactionTestCase``, ``drain``, ``enqueued``.

Jobs are kept in memory, each test begins without any, and they run in the real engine, but on the
thread of the test and through its database connection: they see what the test has not committed.
"""

import unittest
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from asgiref.sync import async_to_sync, sync_to_async

from forge_jobs.app import Forge
from forge_jobs.engine.drain import DrainReport

from .application import DECLARED, DjangoApplication, backend_of, ready_application
from .django_api import connections
from .results import stored_result
from .running import RunningDrain
from .task import calls_of
from .unfinished_transaction import JobCommit, in_user_transaction

_test: Final = import_module("django.test")
TestCase: Any = _test.TestCase
TransactionTestCase: Any = _test.TransactionTestCase
_MAX_ROUNDS: Final = 1_000


@contextmanager
def forge_in_memory() -> Generator[None]:
    """Keep the jobs of every task backend in memory, and run them in the thread of ``drain``: what
    ``ForgeTestMixin`` puts around each test, for fixtures of pytest."""
    DECLARED.stand_in = application = DjangoApplication(Forge("memory://"), in_test=True)
    try:
        yield
    finally:
        DECLARED.stand_in = None
        application.forge.close()


class ForgeTestMixin(unittest.TestCase):
    """For any test class of Django: ``class OrderTests(ForgeTestMixin, LiveServerTestCase)``."""

    def run(self, result: unittest.TestResult | None = None) -> Any:
        """Run the test on a store of its own."""
        with forge_in_memory():
            return super().run(result)

    def drain(self) -> DrainReport:
        """Run all jobs that are due, and those that they enqueue; see ``drain``."""
        return drain()

    async def adrain(self) -> DrainReport:
        """``drain`` for ``async def`` tests."""
        return await sync_to_async(drain)()

    def enqueued(self, task: Any = None) -> list[Any]:
        """The results of all stored jobs, oldest first, or those of one task. Jobs of a transaction
        that has not ended are not among them."""
        return enqueued(task)

    async def aenqueued(self, task: Any = None) -> list[Any]:
        """``enqueued`` for ``async def`` tests."""
        return await sync_to_async(enqueued)(task)


class ForgeTestCase(ForgeTestMixin, TestCase):
    """``TestCase`` with ``drain()`` and ``enqueued()``. The transaction around the test counts as
    committed; those of the application end as usual: a rollback leaves no job."""


class ForgeTransactionTestCase(ForgeTestMixin, TransactionTestCase):
    """``TransactionTestCase`` with ``drain()`` and ``enqueued()``."""


def enqueued(task: Any = None) -> list[Any]:
    """The results of all stored jobs, oldest first, or those of one task."""
    application = ready_application(backend_of())
    _store_committed()
    found: list[Any] = []
    for job in application.forge.jobs():
        known = application.task(job.kind)
        if known is not None and (task is None or task.func is known.func):
            found.append(stored_result(known, calls_of(known, {}), job, None))
    return found[::-1]


def drain(backend: str | None = None) -> DrainReport:
    """Run all jobs that are due, here and now, and what they enqueue; from synchronous tests.

    Jobs that wait for a retry or a later time stay where they are. Outside of a ``ForgeTestMixin``
    it works on the store of the project.
    """
    application = ready_application(backend_of(backend))
    total = DrainReport()
    for _ in range(_MAX_ROUNDS):
        _store_committed()
        report = async_to_sync(_drain)(application)
        total = _sum(total, report)
        if not report.ran:
            break
    return total


async def _drain(application: DjangoApplication) -> DrainReport:
    """Drain on a loop beside this thread, which meanwhile runs what is bound to it."""
    application.drain = RunningDrain()
    try:
        return await application.forge.adrain()
    finally:
        application.drain = None


def _store_committed() -> None:
    """Store the jobs of transactions that a TestCase keeps from committing."""
    opened: list[Any] = connections.all(initialized_only=True)
    for connection in opened:
        if in_user_transaction(connection):
            continue
        for entry in list(connection.run_on_commit):
            if isinstance(entry[1], JobCommit):
                entry[1]()
                connection.run_on_commit.remove(entry)


def _sum(one: DrainReport, other: DrainReport) -> DrainReport:
    return DrainReport(
        ran=one.ran + other.ran,
        done=one.done + other.done,
        failed=one.failed + other.failed,
        dead=one.dead + other.dead,
        put_off=one.put_off + other.put_off,
    )
