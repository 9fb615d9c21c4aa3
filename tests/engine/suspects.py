"""Tasks of an imaginary application, found again by child processes."""

import os
from collections.abc import Callable
from typing import Any

from forge_jobs.engine.running.context import Context
from forge_jobs.engine.running.registry import ChildTarget, Handler, RunIn


async def _innocent() -> int:
    return os.getpid()


async def _deadly() -> int:
    os._exit(1)


class App:
    """Knows handlers by kind, like a Forge object."""

    def handler(self, kind: str) -> Handler | None:
        body = {"innocent": _innocent, "deadly": _deadly}.get(kind)
        if body is None:
            return None

        def call(data: bytes, make_context: Callable[[], Context]) -> Any:
            return body()

        target = ChildTarget(module=__name__, file=None, kind=kind)
        return Handler(kind=kind, run_in=RunIn.LOOP, call=call, child=target)


app = App()
