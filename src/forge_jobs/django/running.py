"""Runs a Django task for a job: arguments, context, connections, signals, the value as JSON."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from datetime import datetime
from inspect import iscoroutinefunction
from traceback import format_exception
from typing import Any

from asgiref.sync import sync_to_async

from forge_jobs.core.instant import to_datetime
from forge_jobs.core.outcome import Dead, Done, JobOutcome
from forge_jobs.core.retry import Retry
from forge_jobs.engine.running.context import Context
from forge_jobs.kit.clock import SYSTEM_CLOCK

from .connections import afresh_connections, fresh_connections
from .django_api import Status, normalize_json, task_finished, task_started
from .results import ForgeTaskContext, error_of, finish_result, running_result
from .task import TaskCalls

MakeContext = Callable[[], Context]


class RunningDrain:
    """The event loop of a ``testing.drain``, and the context by which asgiref finds the thread that
    waits for it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()

    def start(self, call: Coroutine[Any, Any, Any]) -> "Future[Any]":
        """Start a coroutine on the loop, from any thread."""
        return self._context.copy().run(asyncio.run_coroutine_threadsafe, call, self._loop)


class TaskRunner:
    """Calls one task for its jobs."""

    def __init__(self, task: Any, calls: TaskCalls, sender: type[Any]) -> None:
        self._task = task
        self._calls = calls
        self._sender = sender
        self.is_async = iscoroutinefunction(task.func)

    def run(self, data: bytes, make_context: MakeContext) -> Any:
        """Run a ``def`` on this thread."""
        with fresh_connections():
            return self._call(data, make_context())

    async def arun(self, data: bytes, make_context: MakeContext) -> Any:
        """Run an ``async def`` on this event loop."""
        async with afresh_connections():
            return await self._acall(data, make_context())

    async def arun_in_test(self, data: bytes, make_context: MakeContext) -> Any:
        """Run an ``async def`` with the connections of a test, inside its transaction."""
        return await self._acall(data, make_context())

    def run_in_test(
        self, drain: "RunningDrain | None", data: bytes, make_context: MakeContext
    ) -> Any:
        """Likewise a ``def``: on the thread of the test, which waits for its drain."""
        if drain is None:
            return self.run(data, make_context)
        call = sync_to_async(self._call, thread_sensitive=True)(data, make_context())
        return drain.start(call).result()

    def _call(self, data: bytes, context: Context) -> Any:
        result, args, kwargs = self._begin(data, context)
        task_started.send_robust(sender=self._sender, task_result=result)
        try:
            value = self._value(self._task.func(*args, **kwargs))
        except Exception as error:
            if self._fail(result, context, error):
                task_finished.send_robust(sender=self._sender, task_result=result)
            raise
        if self._succeed(result, value):
            task_finished.send_robust(sender=self._sender, task_result=result)
        return value

    async def _acall(self, data: bytes, context: Context) -> Any:
        result, args, kwargs = self._begin(data, context)
        await task_started.asend_robust(sender=self._sender, task_result=result)
        try:
            value = self._value(await self._task.func(*args, **kwargs))
        except Exception as error:
            if self._fail(result, context, error):
                await task_finished.asend_robust(sender=self._sender, task_result=result)
            raise
        if self._succeed(result, value):
            await task_finished.asend_robust(sender=self._sender, task_result=result)
        return value

    def _begin(self, data: bytes, context: Context) -> tuple[Any, list[Any], dict[str, Any]]:
        args, kwargs = self._calls.arguments.decode(data)
        result = running_result(self._task, context, list(args), dict(kwargs), _now())
        if self._task.takes_context:
            args = [ForgeTaskContext(task_result=result, forge=context), *args]
        return result, args, kwargs

    def _value(self, value: Any) -> Any:
        """The value as JSON. Dead for another one: a retry would repeat its effects."""
        if isinstance(value, JobOutcome):
            return value
        try:
            return normalize_json(value)
        except (TypeError, ValueError) as error:
            raise Dead(f"{self._calls.where} returned what is no JSON: {error}") from error

    def _succeed(self, result: Any, value: Any) -> bool:
        """Whether the run is the last one, for ``task_finished``."""
        if isinstance(value, JobOutcome) and not isinstance(value, Done):
            return False
        returned = value.value if isinstance(value, Done) else value
        finish_result(result, Status.SUCCESSFUL, _now(), returned)
        return True

    def _fail(self, result: Any, context: Context, error: Exception) -> bool:
        """Likewise for a run that raised; one that will be retried is not finished."""
        if not _is_last(error, context, self._calls.settings.retry):
            return False
        kind = type(error)
        path = f"{kind.__module__}.{kind.__qualname__}"
        result.errors.append(error_of(path, "".join(format_exception(error))))
        finish_result(result, Status.FAILED, _now())
        return True


def _is_last(error: Exception, context: Context, retry: Retry | None) -> bool:
    if isinstance(error, Dead):
        return True
    if isinstance(error, JobOutcome) and type(error).__name__ != "Failed":
        return False
    if retry is not None and not retry.allows(error):
        return True
    return context.job.attempts >= context.job.max_attempts


def _now() -> datetime:
    return to_datetime(SYSTEM_CLOCK.now())
