"""``ForgeBackend``: the backend for ``TASKS``."""

from collections.abc import Mapping
from inspect import iscoroutinefunction
from typing import Any, ClassVar, Final

from forge_jobs.app import Forge
from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.store.store import Store

from . import address, checks
from .application import DECLARED, DjangoApplication, ready_application
from .database_teardown import close_before_teardown
from .django_api import (
    BaseTaskBackend,
    InvalidTask,
    ResultDoesNotExist,
    connections,
    task_enqueued,
    transaction,
)  # fmt: skip
from .results import new_result, stored_result
from .task import ForgeTask, calls_of
from .unfinished_transaction import DjangoTransaction, in_user_transaction

_NO_OPTIONS: Final[Mapping[str, Any]] = {}


class ForgeBackend(BaseTaskBackend):
    """Stores Django tasks as jobs of Forge Jobs, in a database of the project.

    ``OPTIONS``: ``database`` the alias in DATABASES (default "default"), or ``url`` another
    address; ``schema``, ``pooler`` and ``listen_url`` on Postgres; ``queues`` the queues a worker
    serves, with their slots; ``defaults`` options for all tasks (``{"max_attempts": 3}``).
    """

    is_forge: ClassVar[bool] = True
    task_class: ClassVar[Any] = ForgeTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    alias: str
    options: dict[str, Any]

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        BaseTaskBackend.__init__(self, alias, params)
        self.defaults: Mapping[str, Any] = self.options.get("defaults", _NO_OPTIONS)
        self._database = address.database_of(self.options)
        self._found: tuple[Any, DjangoApplication] | None = None
        self._joins: bool | None = None

    @property
    def application(self) -> DjangoApplication:
        """The Forge of this backend's address, with its tasks."""
        if DECLARED.stand_in is not None:
            return DECLARED.stand_in
        # The name changes when Django makes its test database.
        name = self._database_name()
        if self._found is None or self._found[0] != (name, DECLARED.generation):
            url = address.store_url(self.options)
            if self._database in connections.settings:
                creation: Any = connections[self._database].creation
                close_before_teardown(creation.__class__, DECLARED.forget)
            self._found = (name, DECLARED.generation), DECLARED.at(url)
        return self._found[1]

    @property
    def forge(self) -> Forge:
        """The Forge object."""
        return ready_application(self).forge

    def validate_task(self, task: Any) -> None:
        """Refuse what cannot run: InvalidTask."""
        BaseTaskBackend.validate_task(self, task)
        if task.run_after is not None and getattr(task, "delay", None) is not None:
            raise InvalidTask("give only one of run_after and delay")
        calls = calls_of(task, self.defaults)
        if calls.settings.cpu and iscoroutinefunction(task.func):
            raise InvalidTask(f"{calls.where}: cpu=True needs a def, not an async def")
        DECLARED.add(task, calls.kind)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store a call as a job: in the open transaction of the database, if there is one."""
        calls = calls_of(task, self.defaults)
        request = calls.request(tuple(args), kwargs)
        connection: Any = connections[self._database]
        application = self.application
        now = to_datetime(SYSTEM_CLOCK.now())
        if not self._in_transaction(connection, application):
            job = application.enqueue(request)
        elif application.in_test:
            job = application.enqueue(request, DjangoTransaction(self._database))
        elif self._can_join():
            connection.ensure_connection()
            job = application.enqueue(request, connection.connection)
        else:
            result = new_result(task, None, args, kwargs, None)
            transaction.on_commit(
                lambda: _store_late(result, application.enqueue(request)), using=self._database
            )
            task_enqueued.send(type(self), task_result=result)
            return result
        result = new_result(task, job, args, kwargs, now)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The result of a job, by its id."""
        application = ready_application(self)
        job = application.forge.job(str(result_id))
        try:
            job.refresh()
        except NotFound as error:
            raise ResultDoesNotExist(result_id) from error
        task = application.task(job.kind)
        if task is None:
            raise ResultDoesNotExist(f"{result_id} is a job of {job.kind!r}, which is no task here")
        worker = None
        if job.status is JobStatus.RUNNING and job.record.owner is not None:
            owner = job.record.owner
            worker = application.forge.client.access.run(lambda store: _host_of(store, owner))
        return stored_result(task, calls_of(task, self.defaults), job, worker)

    def check(self, **kwargs: Any) -> list[Any]:
        """The system checks of this backend."""
        return [*BaseTaskBackend.check(self, **kwargs), *checks.backend_problems(self)]

    def _in_transaction(self, connection: Any, application: DjangoApplication) -> bool:
        if not connection.in_atomic_block:
            return False
        # The transaction that a TestCase puts around each test is none of the application.
        return not application.in_test or in_user_transaction(connection)

    def _can_join(self) -> bool:
        if self._joins is None:
            self._joins = address.joins(self.options)
        return self._joins

    def _database_name(self) -> Any:
        if "url" in self.options or self._database not in connections.settings:
            return None
        return connections[self._database].settings_dict["NAME"]


def _store_late(result: Any, job: Any) -> None:
    """After the commit, for a store that could not be part of the transaction."""
    object.__setattr__(result, "id", job.id)
    object.__setattr__(result, "forge", job)
    object.__setattr__(result, "enqueued_at", to_datetime(SYSTEM_CLOCK.now()))


async def _host_of(store: Store, owner: int) -> str | None:
    found = [one.host_id for one in await store.processes.all() if one.key == owner]
    return found[0] if found else None
