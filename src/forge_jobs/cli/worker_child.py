"""One worker process of ``forge worker``: loads the application and runs jobs until it is stopped.

The parent starts it as ``python -m forge_jobs.cli.worker_child APP --control-fd N …``. Without
``--control-fd`` it runs alone and reacts to signals. It never imports the terminal libraries.

A drain (requested by the parent, by the parent's death or by one SIGTERM) lets running jobs end
within the grace period; a second SIGTERM exits at once. Ctrl-C and SIGHUP reach the whole process
group of the terminal; the parent handles them, and this process ignores them.
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

from forge_jobs import QueueHandle
from forge_jobs.app import Forge
from forge_jobs.config import health_host_from_env
from forge_jobs.core.errors import (
    Corrupt,
    ForgeError,
    Invalid,
    NoQueues,
    NotWritable,
    SchemaMismatch,
    StoreReplaced,
)
from forge_jobs.kit import log
from forge_jobs.kit.clock import SYSTEM_CLOCK

from . import health_port
from .app_path import load_app
from .health_port import HealthResponder, serve_health
from .worker_link import WorkerLink

_LOG = logging.getLogger("forge_jobs.worker")
_ORPHAN_GRACE_S: Final = 3.0
# Longer than the shutdown takes (engine/liveness/shutdown.py), so that a slow store does not lose
# the last writes.
_AFTER_GRACE_S: Final = 1.6
_STORE_CHECK_S: Final = 0.5
_NO_QUEUES_REMEDY: Final = (
    "import the modules that define its tasks there, or pass --queues mail, or set "
    "FORGE_QUEUES=mail, or put a [queues] table into forge.toml"
)
# A retry does not help against these errors.
_PERMANENT_ERRORS: Final = (Invalid, NotWritable, SchemaMismatch, Corrupt)


class StopRequest:
    """A stop request from signals or from the parent, for the coroutine that runs the worker."""

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self.requested = False
        self.drained = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()
        self._terms = 0

    def attach(self) -> None:
        """Connect to the running loop, so that a request wakes ``wait``. Earlier requests count."""
        self._loop = asyncio.get_running_loop()
        if self.requested:
            self._event.set()

    def drain(self, orphaned: bool = False) -> None:
        """Request a drain. Thread-safe. An orphaned worker gets a shorter grace period."""
        if self.requested:
            return
        self.requested = True
        if orphaned:
            _LOG.warning("the parent is gone: stopping")
            self.grace_s = min(self.grace_s, _ORPHAN_GRACE_S)
        threading.Thread(target=self._exit_late, name="forge-exit-timer", daemon=True).start()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._event.set)

    def on_term(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM: the first one drains, the second one exits at once."""
        self._terms += 1
        if self._terms > 1:
            os._exit(1)
        self.drain()

    async def wait(self) -> None:
        """Wait for a stop request."""
        await self._event.wait()

    def _exit_late(self) -> None:
        # A handler that blocks the loop or a thread must not keep the process alive.
        SYSTEM_CLOCK.pause(self.grace_s + _AFTER_GRACE_S)
        os._exit(0 if self.drained else 1)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the worker and exit: 0 drained, 1 failed, 2 usage."""
    given = _parser().parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGHUP):
        # A handler, not SIG_IGN: programs that jobs start would inherit SIG_IGN.
        signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGHUP))
    log.configure(format=given.log_format, level=given.log_level)
    if given.url is not None:
        os.environ["FORGE_URL"] = given.url
    link = None if given.control_fd is None else WorkerLink(given.control_fd)
    try:
        sys.exit(_run(given, link))
    finally:
        if link is not None:
            link.close()


def _run(given: argparse.Namespace, link: WorkerLink | None) -> int:
    try:
        forge = load_app(given.app)
        log.enable_package_loggers()
        stop = StopRequest(given.grace)
        signal.signal(signal.SIGTERM, stop.on_term)
        asyncio.run(_serve(forge, given, link, stop))
    except NoQueues:
        _refuse(link, f"{given.app} has no task and no queue to serve: {_NO_QUEUES_REMEDY}")
        return 1
    except _PERMANENT_ERRORS as error:
        _refuse(link, str(error))
        return 1
    except ForgeError as error:
        _LOG.error("the worker cannot start: %s", error)
        return 1
    return 0 if stop.drained else 1


async def _serve(
    forge: Forge, given: argparse.Namespace, link: WorkerLink | None, stop: StopRequest
) -> None:
    stop.attach()
    try:
        await _serve_open(forge, given, link, stop)
    finally:
        # Also after a failed start: tasks left on the I/O thread would log errors at exit.
        await forge.aclose()


async def _serve_open(
    forge: Forge, given: argparse.Namespace, link: WorkerLink | None, stop: StopRequest
) -> None:
    await forge.aready()
    io = forge.client.access.io
    serving = False
    # Strong references: an event loop holds its tasks weakly.
    background: list[Future[Any]] = []
    if given.health_port is not None:
        port = given.health_port + given.number - 1
        host = given.health_host or health_host_from_env()

        async def metrics() -> str:
            # Imported on the first request: most workers never get one.
            from forge_jobs.ops.prometheus import prometheus_text

            return await prometheus_text(forge.store)

        responder = HealthResponder(lambda: serving, metrics, SYSTEM_CLOCK)
        sockets = health_port.bind(host, port)
        background.append(
            io.spawn(lambda: serve_health(host, port, sockets, responder, SYSTEM_CLOCK))
        )
    if link is not None:
        background.append(io.spawn(lambda: link.listen(stop.drain)))
    settings = replace(
        forge.settings,
        lease_s=given.lease,
        grace_s=given.grace,
        log_jobs=given.log_jobs or forge.settings.log_jobs,
    )
    worker = forge.worker(
        queues=None if given.queues is None else given.queues.split(","),
        settings=settings,
        shutdown_timeout=given.grace,
        replaces=given.replaces,
    )
    async with worker as handle:
        serving = True
        if link is not None:
            link.report_started(handle.host_id)
            background.append(
                io.spawn(lambda: link.heartbeat(lambda: handle.host_id, given.lease, SYSTEM_CLOCK))
            )
        background.append(io.spawn(lambda: _exit_without_store(handle)))
        await stop.wait()
        serving = False
        await handle.shutdown_graceful(stop.grace_s)
    stop.drained = True


async def _exit_without_store(handle: QueueHandle) -> None:
    """Exit once the database file was removed or replaced: no finish of a running job can be
    stored, and the same key may be another job in the new file. Runs on the I/O thread."""
    while not isinstance(handle.lease_error, StoreReplaced):
        await SYSTEM_CLOCK.sleep(_STORE_CHECK_S)
    _LOG.error("this worker exits, and its parent starts another: %s", handle.lease_error)
    os._exit(1)


def _refuse(link: WorkerLink | None, why: str) -> None:
    if link is None:
        print(f"forge worker: {why}", file=sys.stderr)
    else:
        link.refuse(why)


def _ignore(number: int, frame: FrameType | None) -> Any:
    pass


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="forge_jobs.cli.worker_child", allow_abbrev=False)
    parser.add_argument("app")
    parser.add_argument("--queues")
    parser.add_argument("--url")
    parser.add_argument("--grace", type=float, default=20.0)
    parser.add_argument("--lease", type=float, default=15.0)
    parser.add_argument("--log-format", choices=("text", "json"), default="text")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-jobs", action="store_true")
    parser.add_argument("--health-port", type=int)
    parser.add_argument("--health-host")
    parser.add_argument("--control-fd", type=int)
    parser.add_argument("--number", type=int, default=1)
    parser.add_argument("--replaces")
    return parser


if __name__ == "__main__":
    main()
