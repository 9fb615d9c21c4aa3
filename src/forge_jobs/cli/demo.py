"""``forge demo``: runs workers on a SQLite file, enqueues sample jobs and shows them live."""

import asyncio
import os
import signal
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Final

import typer

from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.ops import queries
from forge_jobs.ops.actions import Store

from . import terminal
from .demo_feed import Payments, sample_jobs
from .demo_view import DemoState, LiveScreen, PlainLines
from .exit_codes import FAILED, OK, Stop
from .session import with_forge, with_store
from .tied_process import TiedProcess
from .web import import_standalone

if TYPE_CHECKING:
    from forge_jobs.app import Forge

WORKERS: Final = 2
_APP: Final = "forge_jobs.cli.demo_app:forge"
_QUEUES: Final = "mail:8,pictures:4,orders:4,reports:2"
_TURN_S: Final = 0.25
_JOBS_PER_S: Final = 40
_GRACE_S: Final = 5.0
_LEASE_S: Final = 5.0
_FAILED: Final = Filter(statuses=(JobStatus.FAILED, JobStatus.DEAD))


@dataclass(frozen=True, slots=True)
class _DemoRun:
    url: str
    seconds: float | None
    jobs: int | None
    worker: TiedProcess
    log: Path
    clock: Clock
    port: int | None


def demo(
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", metavar="N", min=1, help="Stop after N seconds."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", min=1, help="Stop after N jobs have ended."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="PATH", help="Keep the database here. Default: removed."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="P", min=0, max=65_535, help="Mission Control; default 8787 or any free one."
        ),
    ] = None,
) -> None:
    """Run two worker processes with sample jobs that fail, retry, wait and get throttled.

    Shows them in the browser (Mission Control) and in the terminal.

    \b
    Example:
      forge demo
      forge demo --seconds 10 --file demo.db
    """
    import_standalone().check_page_files()
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="forge-demo-")))
        path = (file or folder / "demo.db").resolve()
        url = f"sqlite:///{path}"
        # The sample app reads its address here, and its file is new whatever the shell has set.
        os.environ.update(FORGE_URL=url, FORGE_AUTO_MIGRATE="1")
        log = folder / "workers.log"
        output = resources.enter_context(log.open("wb"))
        worker = _start_workers(url, output)
        run = _DemoRun(url, seconds, jobs, worker, log, SYSTEM_CLOCK, port)
        raise typer.Exit(_run(run, kept=file is not None))


def _start_workers(url: str, output: IO[bytes]) -> TiedProcess:
    arguments = [_APP, "--queues", _QUEUES, "--processes", str(WORKERS)]
    arguments += ["--grace", f"{_GRACE_S}", "--lease", f"{_LEASE_S}"]
    named = {"FORGE_URL": url, "FORGE_WORKER_PREFIX": "demo", "FORGE_QUEUES": ""}
    return TiedProcess(arguments, environment=named, output=output)


def _run(run: _DemoRun, *, kept: bool) -> int:
    try:
        last = with_forge(run.url, lambda forge: _serve(forge, run))
    finally:
        code = run.worker.stop(_GRACE_S)
    after = with_store(run.url, lambda store: queries.overview(store, minutes=1))
    return _print_summary(replace(last, overview=after), code, run.url, kept)


async def _serve(forge: "Forge", run: _DemoRun) -> DemoState:
    standalone = import_standalone()
    listener = standalone.listen_preferring(
        standalone.DEFAULT_PORT if run.port is None else run.port
    )
    async with standalone.serve(forge, listener):
        address = standalone.address(listener)
        terminal.console().print(f"Mission Control: {address}", soft_wrap=True)
        return await _enqueue_and_draw(forge, run, address)


async def _enqueue_and_draw(forge: "Forge", run: _DemoRun, address: str) -> DemoState:
    store = await forge.aready()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    feed, enqueued, payments = sample_jobs(), 0, Payments()
    screen = terminal.console()
    view = LiveScreen(screen, address) if screen.is_terminal else PlainLines(screen)
    if not screen.is_terminal:
        screen.print(f"{WORKERS} workers on {run.url}", soft_wrap=True)
    start = run.clock.mono()
    with view:
        while True:
            elapsed_s = run.clock.mono() - start
            wanted = int((elapsed_s + 1) * _JOBS_PER_S)
            if run.jobs is not None:
                wanted = min(wanted, run.jobs)
            fresh = list(islice(feed, max(0, wanted - enqueued)))
            if fresh:
                await store.jobs.enqueue(fresh)
                enqueued += len(fresh)
                payments.add(fresh, elapsed_s)
            if paid := payments.due(elapsed_s):
                await store.events.send(paid)
            state = await _read_state(store, elapsed_s, enqueued, run)
            view.draw(state)
            if stop.is_set() or _is_finished(state, run):
                return state
            if run.worker.exit_code is not None:
                raise Stop(_exit_reason(run.log), code="worker_ended", exit_code=FAILED)
            try:
                async with asyncio.timeout(_TURN_S):
                    await stop.wait()
            except TimeoutError:
                pass


async def _read_state(store: Store, elapsed_s: float, enqueued: int, run: _DemoRun) -> DemoState:
    overview = await queries.overview(store, minutes=1, clock=run.clock)
    failures = await queries.jobs(store, _FAILED, limit=5)
    return DemoState(elapsed_s, enqueued, overview, failures.jobs)


def _is_finished(state: DemoState, run: _DemoRun) -> bool:
    if run.seconds is not None and state.elapsed_s >= run.seconds:
        return True
    return run.jobs is not None and state.enqueued >= run.jobs and state.live == 0


def _exit_reason(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"the workers exited: {lines[-1] if lines else 'without a log line'}"


def _print_summary(last: DemoState, code: int, url: str, kept: bool) -> int:
    counts = last.overview.counts
    out = terminal.console()
    out.print(
        f"\nProcessed {last.ended:,} of {last.enqueued:,} jobs in {last.elapsed_s:.0f} s: "
        f"{counts[JobStatus.DONE]:,} done, {counts[JobStatus.DEAD]:,} dead, "
        f"{last.live:,} still waiting."
    )
    out.print("The workers and Mission Control have stopped.")
    if kept:
        out.print(f"Look around: forge web --url {url}", soft_wrap=True)
    if code != 0:
        out.print(f"The workers exited with code {code}.")
    return OK if code == 0 else FAILED
