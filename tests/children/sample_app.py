"""Handlers for the tests of the child executor, in a module variable like a Forge object."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forge_jobs.core import payload
from forge_jobs.core.outcome import Dead, Done, Failed, Snooze, Throttled
from forge_jobs.core.retry import Retry
from forge_jobs.engine.running.context import Context
from forge_jobs.engine.running.registry import ChildTarget, Handler, RunIn

Function = Callable[[Any, Context], Any]


class Shop:
    """Knows handlers by kind, like a Forge object."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}

    def task(self, function: Function) -> Function:
        self.functions[function.__name__] = function
        return function

    def handler(self, kind: str) -> Handler | None:
        function = self.functions.get(kind)
        if function is None:
            return None

        def call(data: bytes, make_context: Callable[[], Context]) -> Any:
            return function(payload.decode(data), make_context())

        return Handler(
            kind=kind,
            run_in=RunIn.CHILD,
            call=call,
            retry=Retry(never=(ValueError,)),
            scopes=("smtp",),
            child=ChildTarget(module=__name__, file=None, kind=kind),
        )


shop = Shop()


@shop.task
def echo(value: Any, ctx: Context) -> Any:
    return value


@shop.task
def pid(value: Any, ctx: Context) -> int:
    return os.getpid()


@shop.task
def nap(seconds: float, ctx: Context) -> int:
    time.sleep(seconds)
    return os.getpid()


@shop.task
async def anap(seconds: float, ctx: Context) -> int:
    await asyncio.sleep(seconds)
    return id(asyncio.get_running_loop())


@shop.task
def describe(value: Any, ctx: Context) -> dict[str, Any]:
    return {
        "id": ctx.job.id,
        "kind": ctx.job.kind,
        "queue": ctx.job.queue,
        "attempts": ctx.job.attempts,
        "max_attempts": ctx.job.max_attempts,
        "tags": list(ctx.job.tags),
        "host": ctx.host_id,
        "deadline": None if ctx.deadline is None else ctx.deadline.timestamp(),
        "cancelled": ctx.cancelled,
        "argv": sys.argv[1:],
    }


@shop.task
def report(value: Any, ctx: Context) -> None:
    ctx.progress(0.25, "a quarter")
    ctx.log.info("hello %s", "there")
    ctx.log.warning("careful")
    print("printed by the handler")
    ctx.on_done("echo", {"from": "report"})


@shop.task
def print_lines(lines: int, ctx: Context) -> None:
    for number in range(lines):
        print("line", number)


@shop.task
def fail(text: str, ctx: Context) -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise RuntimeError(text) from error


@shop.task
def never_retry(text: str, ctx: Context) -> None:
    raise ValueError(text)


@shop.task
def sys_exit(code: int, ctx: Context) -> None:
    sys.exit(code)


@shop.task
def outcome(how: str, ctx: Context) -> Any:
    match how:
        case "done":
            return Done({"ok": True})
        case "failed":
            raise Failed("not now")
        case "dead":
            raise Dead("never")
        case "throttled":
            raise Throttled(retry_after=30, scope="smtp")
        case "elsewhere":
            return Throttled(scope="undeclared")
        case "snooze":
            return Snooze("1m")


@shop.task
def unstorable(value: Any, ctx: Context) -> object:
    return object()


@shop.task
def big(size: int, ctx: Context) -> str:
    return "x" * size


@shop.task
def die(how: str, ctx: Context) -> None:
    if how == "exit":
        os._exit(1)
    os.kill(os.getpid(), signal.SIGKILL)


@shop.task
def hold_lock(path: str, ctx: Context) -> None:
    Path(path).write_text(str(os.getpid()))
    re.match(r"(a+)+$", "a" * 60 + "b")


@shop.task
def starts_a_process(path: str, ctx: Context) -> None:
    """Starts a process of its own, writes both pids, and cleans up when it is stopped."""
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    Path(path).write_text(f"{os.getpid()} {sleeper.pid}")
    try:
        time.sleep(300)
    finally:
        Path(path + ".tidied").touch()


@shop.task
async def cleans_up(path: str, ctx: Context) -> None:
    Path(path).write_text(str(os.getpid()))
    try:
        await asyncio.sleep(300)
    finally:
        Path(path + ".tidied").touch()


@shop.task
def stubborn(path: str, ctx: Context) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(path).write_text(str(os.getpid()))
    time.sleep(300)
