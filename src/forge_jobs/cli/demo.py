"""``forge demo``: real workers, a feeder and a live picture, on a SQLite file, in one command."""

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

from . import show
from .demo_feed import endless
from .demo_view import LiveScreen, Picture, PlainLines
from .exit_codes import FAILED, OK, Stop
from .session import on_store, with_forge
from .tied_process import TiedProcess
from .web import import_serving

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
class _Show:
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
        typer.Option("--seconds", metavar="N", min=1, help="End by itself after that long."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", min=1, help="End when that many jobs have ended."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="PATH", help="Keep the database here; else it is removed."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="P", min=0, max=65_535, help="Of Mission Control; else 8787, or any free one."
        ),
    ] = None,
) -> None:
    """Two worker processes run sample jobs that fail, retry, wait and get throttled.

    Watch them in the browser (Mission Control) and in the terminal.

    \b
    Example:
      forge demo
      forge demo --seconds 10 --file demo.db
    """
    import_serving().check_page_files()
    with ExitStack() as rooms:
        folder = Path(rooms.enter_context(tempfile.TemporaryDirectory(prefix="forge-demo-")))
        place = (file or folder / "demo.db").resolve()
        url = f"sqlite:///{place}"
        # the sample app reads its address here, and its file is new whatever the shell says
        os.environ.update(FORGE_URL=url, FORGE_AUTO_MIGRATE="1")
        log = folder / "workers.log"
        output = rooms.enter_context(log.open("wb"))
        worker = _workers(url, output)
        part = _Show(url, seconds, jobs, worker, log, SYSTEM_CLOCK, port)
        raise typer.Exit(_run(part, kept=file is not None))


def _workers(url: str, output: IO[bytes]) -> TiedProcess:
    arguments = [_APP, "--queues", _QUEUES, "--processes", str(WORKERS)]
    arguments += ["--grace", f"{_GRACE_S}", "--lease", f"{_LEASE_S}"]
    named = {"FORGE_URL": url, "FORGE_WORKER_PREFIX": "demo", "FORGE_QUEUES": ""}
    return TiedProcess(arguments, environment=named, output=output)


def _run(part: _Show, *, kept: bool) -> int:
    try:
        last = with_forge(part.url, lambda forge: _serve(forge, part))
    finally:
        code = part.worker.stop(_GRACE_S)
    after = on_store(part.url, lambda store: queries.overview(store, minutes=1))
    return _farewell(replace(last, seen=after), code, part.url, kept)


async def _serve(forge: "Forge", part: _Show) -> Picture:
    serving = import_serving()
    place = serving.listen_preferring(serving.DEFAULT_PORT if part.port is None else part.port)
    async with serving.serve(forge, place):
        address = serving.address(place)
        show.console().print(f"Mission Control: {address}", soft_wrap=True)
        return await _play(forge, part, address)


async def _play(forge: "Forge", part: _Show, address: str) -> Picture:
    store = await forge.aready()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    feed, fed = endless(), 0
    screen = show.console()
    view = LiveScreen(screen, address) if screen.is_terminal else PlainLines(screen)
    if not screen.is_terminal:
        screen.print(f"{WORKERS} workers on {part.url}", soft_wrap=True)
    start = part.clock.mono()
    with view:
        while True:
            elapsed_s = part.clock.mono() - start
            wanted = int((elapsed_s + 1) * _JOBS_PER_S)
            if part.jobs is not None:
                wanted = min(wanted, part.jobs)
            fresh = list(islice(feed, max(0, wanted - fed)))
            if fresh:
                await store.jobs.enqueue(fresh)
                fed += len(fresh)
            picture = await _read_state(store, elapsed_s, fed, part)
            view.draw(picture)
            if stop.is_set() or _over(picture, part):
                return picture
            if part.worker.ended is not None:
                raise Stop(_why_ended(part.log), code="worker_ended", exit_code=FAILED)
            try:
                async with asyncio.timeout(_TURN_S):
                    await stop.wait()
            except TimeoutError:
                pass


async def _read_state(store: Store, elapsed_s: float, fed: int, part: _Show) -> Picture:
    seen = await queries.overview(store, minutes=1, clock=part.clock)
    failures = await queries.jobs(store, _FAILED, limit=5)
    return Picture(elapsed_s, fed, seen, failures.jobs)


def _over(picture: Picture, part: _Show) -> bool:
    if part.seconds is not None and picture.elapsed_s >= part.seconds:
        return True
    return part.jobs is not None and picture.fed >= part.jobs and picture.live == 0


def _why_ended(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"the workers ended by themselves: {lines[-1] if lines else 'they said nothing'}"


def _farewell(last: Picture, code: int, url: str, kept: bool) -> int:
    counts = last.seen.counts
    out = show.console()
    out.print(
        f"\nProcessed {last.ended:,} of {last.fed:,} jobs in {last.elapsed_s:.0f} s: "
        f"{counts[JobStatus.DONE]:,} done, {counts[JobStatus.DEAD]:,} dead, "
        f"{last.live:,} still waiting."
    )
    out.print("The workers and Mission Control have stopped.")
    if kept:
        out.print(f"Look around: forge web --url {url}", soft_wrap=True)
    if code != 0:
        out.print(f"The workers left with exit code {code}.")
    return OK if code == 0 else FAILED
