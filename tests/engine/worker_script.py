"""A worker process for tests: ``python -m tests.engine.worker_script DATABASE MARKS [SETTINGS]``.

Handlers leave marks in a folder, so that a test sees what happened whatever becomes of the process.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forge_jobs.backends.url import open_store
from forge_jobs.config import EngineSettings
from forge_jobs.core import payload
from forge_jobs.engine.running.context import Context
from forge_jobs.engine.running.registry import ChildTarget, Handler, HandlerRegistry, RunIn
from forge_jobs.engine.runtime import QueueRuntime


class Marks:
    """Empty files whose names say what happened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def leave(self, what: str) -> None:
        (self.folder / f"{what}-{os.getpid()}").touch()

    def count(self, what: str) -> int:
        return len(list(self.folder.glob(f"{what}[.-]*")))


MARKS = Marks(Path(os.environ.get("FORGE_TEST_MARKS", ".")))


async def _wait(ctx: Context, given: Any) -> str:
    MARKS.leave(f"started.{ctx.job.id}")
    try:
        await asyncio.sleep(given.get("seconds", 60))
    except asyncio.CancelledError:
        MARKS.leave(f"told.{ctx.job.id}")
        raise
    return "waited"


async def _quick(ctx: Context, given: Any) -> None:
    return None


async def _deadly(ctx: Context, given: Any) -> None:
    MARKS.leave("deadly")
    os._exit(1)


class App:
    """Knows handlers by kind, like a Forge object."""

    def handler(self, kind: str) -> Handler | None:
        body = {"wait": _wait, "quick": _quick, "deadly": _deadly}.get(kind)
        if body is None:
            return None

        def call(data: bytes, make_context: Callable[[], Context]) -> Any:
            return body(make_context(), payload.decode(data))

        target = ChildTarget(module="tests.engine.worker_script", file=None, kind=kind)
        return Handler(kind=kind, run_in=RunIn.LOOP, call=call, child=target)


app = App()


def registry() -> HandlerRegistry:
    found = HandlerRegistry()
    for kind in ("wait", "quick", "deadly"):
        handler = app.handler(kind)
        assert handler is not None
        found.register(handler)
    return found


async def main(url: str, slots: int, grace_s: float, settings: dict[str, Any]) -> None:
    store = open_store(url)
    runtime = QueueRuntime(store, registry(), settings=EngineSettings(**settings))
    handle = await runtime.with_queues({"q": slots}).start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    MARKS.leave("ready")
    await stop.wait()
    await handle.shutdown_graceful(grace_s)
    await store.close()
    MARKS.leave("left")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), json.loads(sys.argv[4])))
