"""One worker process of ``forge worker``: loads the application and serves until told to stop.

Started by the parent as ``python -m forge_jobs.cli.worker_child APP --control-fd N …``; without
``--control-fd`` it stands alone and obeys signals. It never imports the libraries that draw tables.

Ends: a drain (the parent's word, the parent's death, or one SIGTERM) lets running jobs end for the
grace; a second SIGTERM ends at once. Ctrl-C and SIGHUP reach the whole group of the terminal and
are the parent's business.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import FrameType
from typing import Any, Final, NoReturn

from forge_jobs.app import Forge
from forge_jobs.core.errors import (
    BadOption,
    Corrupt,
    ForgeError,
    Invalid,
    NotWritable,
    SchemaMismatch,
)
from forge_jobs.kit import log
from forge_jobs.kit.clock import SYSTEM_CLOCK

from .app_path import load_app
from .health_port import serve_health
from .worker_link import ParentLine

_LOG = logging.getLogger("forge_jobs.worker")
_ORPHAN_GRACE_S: Final = 3.0
# Longer than leaving takes (engine/liveness/shutdown.py): a slow store is no reason to go unheard.
_AFTER_GRACE_S: Final = 1.6
# Trying again does not help against these.
_REFUSALS: Final = (Invalid, NotWritable, SchemaMismatch, Corrupt)


class Stopping:
    """The wish to stop, from signals and from the parent, as the serving coroutine sees it."""

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self.asked = False
        self.drained = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()
        self._terms = 0

    def attach(self) -> None:
        """From here on a wish wakes the coroutine; before, it is only kept."""
        self._loop = asyncio.get_running_loop()
        if self.asked:
            self._event.set()

    def drain(self, orphaned: bool = False) -> None:
        """Stop in good order; from any thread. Orphans have little time."""
        if self.asked:
            return
        self.asked = True
        if orphaned:
            _LOG.warning("the parent is gone: stopping")
            self.grace_s = min(self.grace_s, _ORPHAN_GRACE_S)
        threading.Thread(target=self._insist, name="forge-last-resort", daemon=True).start()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._event.set)

    def on_term(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM: the first drains, the second ends at once."""
        self._terms += 1
        if self._terms > 1:
            os._exit(1)
        self.drain()

    async def wait(self) -> None:
        """Until somebody wants this worker to stop."""
        await self._event.wait()

    def _insist(self) -> None:
        # A job that blocks the loop, or a thread that nobody can end, must not keep us.
        SYSTEM_CLOCK.pause(self.grace_s + _AFTER_GRACE_S)
        os._exit(0 if self.drained else 1)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Serve; the exit code says how it ended: 0 drained, 1 failed, 2 usage."""
    given = _parser().parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGHUP):
        # A handler, not SIG_IGN: programs that jobs start would inherit that.
        signal.signal(number, _nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGHUP))
    log.configure(format=given.log_format)
    if given.url is not None:
        os.environ["FORGE_URL"] = given.url
    line = None if given.control_fd is None else ParentLine(given.control_fd)
    try:
        sys.exit(_run(given, line))
    finally:
        if line is not None:
            line.close()


def _run(given: argparse.Namespace, line: ParentLine | None) -> int:
    try:
        forge = load_app(given.app)
        stopping = Stopping(given.grace)
        signal.signal(signal.SIGTERM, stopping.on_term)
        asyncio.run(_serve(forge, given, line, stopping))
    except _REFUSALS as error:
        _refuse(line, str(error))
        return 1
    except ForgeError as error:
        _LOG.error("the worker cannot start: %s", error)
        return 1
    return 0 if stopping.drained else 1


async def _serve(
    forge: Forge, given: argparse.Namespace, line: ParentLine | None, stopping: Stopping
) -> None:
    stopping.attach()
    try:
        await _serve_open(forge, given, line, stopping)
    finally:
        # Also when it could not start: whatever is left on the I/O thread complains at exit.
        await forge.aclose()


async def _serve_open(
    forge: Forge, given: argparse.Namespace, line: ParentLine | None, stopping: Stopping
) -> None:
    await forge.aready()
    io = forge.client.access.io
    serving = False
    # Held on to: an event loop keeps only weak references to what runs on it.
    background: list[Future[Any]] = []
    if given.health_port is not None:
        port = given.health_port + given.number - 1

        async def metrics() -> str:
            # Imported by whoever is asked for it: most workers never are.
            from forge_jobs.ops.prometheus import prometheus_text

            return await prometheus_text(forge.store)

        background.append(io.spawn(lambda: serve_health(port, lambda: serving, metrics)))
        try:
            await asyncio.wrap_future(background[0])
        except OSError as error:
            # asyncio puts a sentence of its own in place of the system's.
            why = os.strerror(error.errno) if error.errno else str(error)
            raise BadOption(
                f"--health-port: cannot listen on {port} ({why}): choose another"
            ) from error
    if line is not None:
        background.append(io.spawn(lambda: line.listen(stopping.drain)))
    settings = replace(forge.settings, lease_s=given.lease, grace_s=given.grace)
    worker = forge.worker(
        queues=None if given.queues is None else given.queues.split(","),
        settings=settings,
        shutdown_timeout=given.grace,
        replaces=given.replaces,
    )
    async with worker as handle:
        serving = True
        if line is not None:
            line.up(handle.host_id)
            background.append(
                io.spawn(lambda: line.heartbeat(lambda: handle.host_id, given.lease, SYSTEM_CLOCK))
            )
        await stopping.wait()
        serving = False
        await handle.shutdown_graceful(stopping.grace_s)
    stopping.drained = True


def _refuse(line: ParentLine | None, why: str) -> None:
    if line is None:
        print(f"forge worker: {why}", file=sys.stderr)
    else:
        line.refuse(why)


def _nothing(number: int, frame: FrameType | None) -> Any:
    pass


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="forge_jobs.cli.worker_child", allow_abbrev=False)
    parser.add_argument("app")
    parser.add_argument("--queues")
    parser.add_argument("--url")
    parser.add_argument("--grace", type=float, default=20.0)
    parser.add_argument("--lease", type=float, default=15.0)
    parser.add_argument("--log-format", choices=("text", "json"), default="text")
    parser.add_argument("--health-port", type=int)
    parser.add_argument("--control-fd", type=int)
    parser.add_argument("--number", type=int, default=1)
    parser.add_argument("--replaces")
    return parser


if __name__ == "__main__":
    main()
