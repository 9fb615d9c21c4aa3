"""The Forge object behind each task backend, and the Django tasks that its workers run.

Django makes a backend object per thread; what they share is kept here, for the whole process: the
tasks by kind, as they are declared, and one Forge for each address.
"""

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from forge_jobs.app import Forge
from forge_jobs.client.job import Job
from forge_jobs.core.declaration import Declaration
from forge_jobs.core.job import NewJob
from forge_jobs.engine.running.registry import ChildTarget, Handler, RunIn

from .django_api import (
    BaseTask,
    InvalidTaskBackend,
    apps,
    autodiscover_modules,
    setting_changed,
    task_backends,
)  # fmt: skip
from .running import MakeContext, RunningDrain, TaskRunner
from .task import TaskCalls, calls_of

WORKER_MODULE: Final = "forge_jobs.django.worker_app"


class DjangoApplication:
    """One store: its Forge and the tasks that run on it. ``in_test``: jobs run on the thread of the
    test, with its connections."""

    def __init__(self, forge: Forge, *, in_test: bool = False) -> None:
        self.forge = forge
        self.in_test = in_test
        # Set by ``testing.drain`` for its length.
        self.drain: RunningDrain | None = None
        self._registered: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._queues: dict[str, int] = {}

    def register(self, task: Any, calls: TaskCalls, sender: type[Any]) -> None:
        """Let workers of this Forge run a task. One declared twice, as by a reload, counts once."""
        with self._lock:
            if calls.kind in self._registered:
                return
            self.forge.registry.register(_handler(TaskRunner(task, calls, sender), calls, self))
            if calls.declared is not None:
                self.forge.registry.limits[calls.declared.name] = calls.declared
            self._registered[calls.kind] = task

    def declare_queues(self, slots: Mapping[str, int]) -> None:
        """The queues and slots of ``OPTIONS["queues"]``."""
        with self._lock:
            for name, count in slots.items():
                if name not in self._queues:
                    self._queues[name] = count
                    self.forge.queue(name, slots=count)

    def task(self, kind: str) -> Any | None:
        """The task of a kind; None for one that Django does not know."""
        return self._registered.get(kind)

    def enqueue(self, request: NewJob, tx: object = None) -> Job[Any]:
        """Store a job, in the transaction of ``tx`` if there is one."""
        return self.forge.client.enqueue(request, None, tx)


class DeclaredTasks:
    """Every task of this process whose backend is a ForgeBackend, by kind, and the applications."""

    def __init__(self) -> None:
        self._tasks: dict[str, Any] = {}
        self._applications: dict[str, DjangoApplication] = {}
        self._lock = threading.Lock()
        self._discovered = False
        # Raised whenever the applications are forgotten.
        self.generation = 0
        # Set by ForgeTestCase: stands for every application.
        self.stand_in: DjangoApplication | None = None

    def add(self, task: Any, kind: str) -> None:
        """Keep the declared task of a kind: the first one, since ``using`` makes others."""
        known = self._tasks.get(kind)
        if known is None or known.func is not task.func:
            self._tasks[kind] = task

    def all(self) -> dict[str, Any]:
        """All tasks, by kind, after the modules of all applications were imported."""
        self.discover()
        return dict(self._tasks)

    def discover(self) -> None:
        """Import the module ``tasks`` of every installed application, once. Kinds in the store are
        only looked up among what these declare: nothing is imported because of stored data."""
        with self._lock:
            if self._discovered or not apps.ready:
                return
            self._discovered = True
        autodiscover_modules("tasks")

    def at(self, url: str) -> DjangoApplication:
        """The application of an address."""
        if self.stand_in is not None:
            return self.stand_in
        with self._lock:
            found = self._applications.get(url)
            if found is None:
                in_test = url.startswith("memory://")
                found = self._applications[url] = DjangoApplication(Forge(url), in_test=in_test)
            return found

    def forget(self) -> None:
        """Forget what was derived from settings, and close the stores."""
        with self._lock:
            self.generation += 1
            applications = list(self._applications.values())
            self._applications.clear()
        for application in applications:
            application.forge.close()


DECLARED: Final = DeclaredTasks()


def backend_of(alias: str | None = None) -> Any:
    """The ForgeBackend of an alias; without one the only backend of that kind, or the default.
    InvalidTaskBackend where there is none."""
    aliases = [alias] if alias is not None else list(task_backends.settings)
    backends: list[Any] = [task_backends[one] for one in aliases]
    found = [one for one in backends if getattr(one, "is_forge", False)]
    if not found:
        where = f"TASKS[{alias!r}]" if alias is not None else "TASKS"
        raise InvalidTaskBackend(f"{where} has no forge_jobs.django.ForgeBackend")
    return next((one for one in found if one.alias == "default"), found[0])


def forge_of(alias: str | None = None) -> Forge:
    """The Forge object of a task backend, with all its tasks: for ``forge.jobs(...)``, schedules,
    events, and everything else that ``django.tasks`` has no words for."""
    return ready_application(backend_of(alias)).forge


def ready_application(backend: Any) -> DjangoApplication:
    """The application of a backend, with the tasks of all backends on the same store."""
    application = backend.application
    for kind, task in DECLARED.all().items():
        own = task_backends[task.backend]
        if getattr(own, "is_forge", False) and own.application is application:
            calls = calls_of(task, own.defaults)
            assert calls.kind == kind
            application.register(task, calls, type(own))
    application.declare_queues(backend.options.get("queues", {}))
    return application


def is_task(value: object) -> bool:
    """Whether it is a task of Django."""
    return isinstance(value, BaseTask)


def _handler(runner: TaskRunner, calls: TaskCalls, application: DjangoApplication) -> Handler:
    settings = calls.settings
    if application.in_test and runner.is_async:
        run_in, run = RunIn.LOOP, runner.arun_in_test
    elif application.in_test:
        run_in = RunIn.THREAD

        def run(data: bytes, make_context: MakeContext) -> Any:
            return runner.run_in_test(application.drain, data, make_context)

    elif settings.cpu:
        run_in, run = RunIn.CHILD, runner.run
    elif runner.is_async:
        run_in, run = RunIn.LOOP, runner.arun
    else:
        run_in, run = RunIn.THREAD, runner.run
    declaration = Declaration(template=calls.template, payload_limit=settings.payload_limit)
    return Handler(
        kind=calls.kind,
        run_in=run_in,
        call=run,
        queue=calls.template.queue,
        retry=settings.retry,
        timeout_s=settings.timeout_s,
        scopes=settings.scopes,
        child=ChildTarget(module=WORKER_MODULE, file=None, kind=calls.kind),
        options=settings.options,
        encode=partial(calls.arguments.encode, limit=settings.payload_limit, what=calls.where),
        declare=lambda: declaration,
    )


def _on_setting_changed(*, setting: str, **_: Any) -> None:
    if setting in ("TASKS", "DATABASES"):
        DECLARED.forget()


setting_changed.connect(_on_setting_changed)
