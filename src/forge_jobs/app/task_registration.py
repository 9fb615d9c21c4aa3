"""Registers functions: makes a task and the handler that runs its jobs."""

import functools
import inspect
import os
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from forge_jobs.client.job_client import JobClient
from forge_jobs.client.options import TaskSettings, task_settings
from forge_jobs.client.signature import Signature
from forge_jobs.client.task import AsyncTask, DefTask, MakeLocal, Task
from forge_jobs.core import names
from forge_jobs.core.declaration import Declaration
from forge_jobs.core.errors import BadOption, KindTaken
from forge_jobs.core.job import Successor
from forge_jobs.core.limit_key import first_name
from forge_jobs.engine.running.context import Context
from forge_jobs.engine.running.registry import ChildTarget, Handler, HandlerRegistry, RunIn

_MAIN = "__main__"


class TaskRegistration:
    """Makes tasks and adds them to ``tasks``, by kind."""

    def __init__(
        self,
        tasks: dict[str, Task[..., Any]],
        registry: HandlerRegistry,
        client: JobClient,
        make_local: MakeLocal,
    ) -> None:
        self.tasks = tasks
        self._registry = registry
        self._client = client
        self._make_local = make_local

    def register(
        self,
        function: Callable[..., Any],
        options: Mapping[str, Any],
        scope: Mapping[str, object] | None = None,
    ) -> Task[..., Any]:
        """Make and register the task of a function. BadOption, BadName or KindTaken."""
        _check_function(function)
        kind = names.kind_name(options.get("kind", getattr(function, "__name__", None)))
        settings = task_settings(options, where=f"task {kind!r}")
        signature = Signature(function, kind=kind, contexts=(Context,), scope=scope)
        is_async = inspect.iscoroutinefunction(function)
        child = _child(function, kind)
        if settings.cpu:
            _check_cpu(function, kind, child, is_async=is_async)
        self._check_free(kind)
        made = (AsyncTask if is_async else DefTask)[..., Any](
            function,
            kind=kind,
            settings=settings,
            signature=signature,
            client=self._client,
            make_local=self._make_local,
            on_dead=self._successor(options.get("on_dead"), kind),
        )
        if settings.per is not None and not signature.has(first_name(settings.per)):
            raise BadOption(
                f"task {kind!r}: per={settings.per!r} names no argument of it: it takes {signature}"
            )
        self._registry.register(_handler(made, settings, child, is_async=is_async))
        declared = settings.declared(kind)
        if declared is not None:
            self._registry.limits[declared.name] = declared
        self.tasks[kind] = made
        return made

    def _check_free(self, kind: str) -> None:
        taken = self.tasks.get(kind)
        if taken is not None:
            where = f"{taken.function.__module__}.{taken.function.__qualname__}"
            raise KindTaken(
                f"kind {kind!r} is already registered for {where}: "
                "give this task another name with @forge.task(kind=...)"
            )

    def _successor(self, on_dead: object, kind: str) -> Successor | None:
        if on_dead is None:
            return None
        if not isinstance(on_dead, Task) or self.tasks.get(on_dead.kind) is not on_dead:
            raise BadOption(
                f"task {kind!r}: on_dead={on_dead!r} must be a task of the same Forge: "
                "decorate it with @forge.task first"
            )
        if not on_dead.signature.takes("job"):
            raise BadOption(
                f"task {kind!r}: its on_dead task {on_dead.kind!r} must take one argument named "
                f"'job' (a DeadJob), it takes {on_dead.signature}"
            )
        return on_dead.successor()


def _check_function(function: object) -> None:
    if isinstance(function, Task):
        raise BadOption(f"task {function.kind!r} is a task already: put one @forge.task on it")
    if not callable(function) or isinstance(function, type):
        raise BadOption(f"@forge.task needs a function, not {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadOption(
            f"@forge.task: {function.__qualname__} is a generator; a task returns one value"
        )
    _check_no_method(function)


def _check_no_method(function: Callable[..., Any]) -> None:
    """BadOption for a function of a class body that takes ``self`` or ``cls``: the store keeps
    arguments, and an object of the class is none."""
    if not isinstance(function, types.FunctionType):
        return
    in_class = "." in function.__qualname__.rpartition("<locals>.")[2]
    first = next(iter(inspect.signature(function).parameters), None)
    if in_class and first in ("self", "cls"):
        raise BadOption(
            f"@forge.task: {function.__qualname__} is a method, and {first!r} would become an "
            "argument of its jobs: define the function outside of the class, put @staticmethod "
            f"below @forge.task, or register a bound method with "
            f"forge.task(object.{function.__name__})"
        )


def _handler(
    task: Task[..., Any], settings: TaskSettings, child: ChildTarget | None, *, is_async: bool
) -> Handler:
    run_in = RunIn.CHILD if settings.cpu else RunIn.LOOP if is_async else RunIn.THREAD
    return Handler(
        kind=task.kind,
        run_in=run_in,
        call=functools.partial(task.signature.call, task.function),
        queue=settings.queue,
        retry=settings.retry,
        timeout_s=settings.timeout_s,
        scopes=settings.scopes,
        child=child,
        options=settings.options,
        signature=task.signature.published,
        encode=functools.partial(task.signature.encode, limit=settings.payload_limit),
        declare=functools.cache(functools.partial(_declaration, task)),
    )


def _declaration(task: Task[..., Any]) -> Declaration:
    try:
        arguments = task.signature.argument_names
    except BadOption:
        # An annotation cannot be evaluated: calls of the task say so, its other options still hold.
        arguments = None
    return Declaration(
        template=task.template, payload_limit=task.settings.payload_limit, arguments=arguments
    )


def _child(function: Callable[..., Any], kind: str) -> ChildTarget | None:
    """Where a child process can import the function from; None when it cannot."""
    name = getattr(function, "__qualname__", "<lambda>")
    if "<" in name:
        return None
    module = function.__module__
    if module != _MAIN:
        return ChildTarget(module=module, file=None, kind=kind)
    main = sys.modules.get(_MAIN)
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != _MAIN:
        return ChildTarget(module=spec.name, file=None, kind=kind)
    file = getattr(main, "__file__", None)
    if file is None:
        return None
    return ChildTarget(module=None, file=os.path.abspath(file), kind=kind)


def _check_cpu(
    function: Callable[..., Any], kind: str, child: ChildTarget | None, *, is_async: bool
) -> None:
    if is_async:
        raise BadOption(
            f"task {kind!r}: cpu=True runs a plain function in a child process; write def, not "
            "async def"
        )
    if child is None:
        raise BadOption(
            f"task {kind!r}: cpu=True needs a function that a child process can import: "
            f"define {getattr(function, '__qualname__', function)!r} at the top level of a module"
        )
