"""``forge dev``: one worker that starts anew whenever the source changes."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from forge_jobs.core.errors import BadAppPath, Refused
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock

from . import show
from .app_path import load_app
from .exit_codes import OK, Stop
from .file_changes import changed, snapshot
from .options import Url
from .tied_process import TiedProcess
from .web import import_serving

_LOOK_S: Final = 0.5
_GRACE_S: Final = 5.0


def dev(
    app: Annotated[
        str, typer.Argument(metavar="APP", help="Where the Forge object is: pkg.module:name.")
    ],
    queues: Annotated[
        str | None, typer.Option("--queues", metavar="LIST", help="As for forge worker.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Mission Control; default 8787 or any free one."),
    ] = None,
    url: Url = None,
) -> None:
    """Run one worker and restart it when a source file below this folder changes.

    Mission Control runs beside it; its address is printed.

    \b
    Example:
      forge dev pkg.jobs:forge
    """
    arguments = [app, "--processes", "1", "--log-format", "text", "--grace", f"{_GRACE_S}"]
    if queues is not None:
        arguments += ["--queues", queues]
    if url is not None:
        # not as an argument of the worker: everybody on the machine can read those
        os.environ["FORGE_URL"] = url
    with _mission_control(app, port) as address:
        if address is not None:
            show.messages().print(f"Mission Control: {address}", soft_wrap=True)
        code = reload_forever(arguments, Path.cwd(), SYSTEM_CLOCK)
    raise typer.Exit(code)


@contextmanager
def _mission_control(app: str, port: int | None) -> Generator[str | None]:
    """Its address; None where the extra [web] or files of the pages are not installed."""
    try:
        serving = import_serving()
        serving.check_pages()
    except (Stop, Refused) as missing:
        show.messages().print(str(missing), soft_wrap=True)
        yield None
        return
    url = _url_of(app)
    place = serving.listen_near(serving.DEFAULT_PORT if port is None else port)
    with serving.served_beside_workers(url, place) as address:
        yield address


def _url_of(app: str) -> str | None:
    """Where the application keeps its jobs; while it cannot be imported, what the settings say."""
    try:
        return load_app(app).url
    except BadAppPath:
        return None


def reload_forever(arguments: list[str], folder: Path, clock: Clock) -> int:
    """Run, look, restart, until Ctrl-C; the exit code."""
    out = show.messages()
    out.print(f"Watching {folder} for changes. Ctrl-C stops.")
    seen = snapshot(folder)
    worker = TiedProcess(arguments)
    told = False
    try:
        while True:
            clock.pause(_LOOK_S)
            now = snapshot(folder)
            files = changed(seen, now)
            seen = now
            if files:
                more = f" and {len(files) - 1} more" if len(files) > 1 else ""
                out.print(f"{_below(files[0], folder)}{more} changed: restarting the worker.")
                worker.stop(_GRACE_S)
                worker, told = TiedProcess(arguments), False
            elif worker.ended is not None and not told:
                told = True
                out.print(f"The worker ended (exit {worker.ended}). Waiting for a change.")
    except KeyboardInterrupt:
        out.print("Stopping.")
    finally:
        worker.stop(_GRACE_S)
    return OK


def _below(path: str, folder: Path) -> str:
    return str(Path(path).relative_to(folder))
