"""``forge dev``: runs one worker and restarts it when source files change."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from forge_jobs.core.errors import BadAppPath, Refused
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock

from . import terminal
from .app_path import load_app
from .exit_codes import OK, Stop
from .file_changes import changed, snapshot
from .options import Url
from .tied_process import TiedProcess
from .web import import_standalone
from .worker import HELP

_POLL_S: Final = 0.5
_GRACE_S: Final = 5.0


def dev(
    app: Annotated[
        str,
        typer.Argument(
            metavar="APP",
            help="Where the Forge object is: pkg.module:name, from the working folder.",
        ),
    ],
    queues: Annotated[
        str | None, typer.Option("--queues", metavar="LIST", help="Same as forge worker --queues.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Mission Control; default 8787 or any free one."),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option("--log-level", metavar="LEVEL", help=HELP["log_level"])
    ] = None,
    log_jobs: Annotated[bool, typer.Option("--log-jobs", help=HELP["log_jobs"])] = False,
    url: Url = None,
) -> None:
    """Run one worker and restart it when a source file below this folder changes.

    Also serves Mission Control and prints its address.

    \b
    Example:
      forge dev pkg.jobs:forge
    """
    arguments = [app, "--processes", "1", "--log-format", "text", "--grace", f"{_GRACE_S}"]
    if queues is not None:
        arguments += ["--queues", queues]
    if log_level is not None:
        arguments += ["--log-level", log_level]
    if log_jobs:
        arguments.append("--log-jobs")
    if url is not None:
        # Not as an argument of the worker: every user of the machine can read those.
        os.environ["FORGE_URL"] = url
    with _mission_control(app, port) as address:
        if address is not None:
            terminal.messages().print(f"Mission Control: {address}", soft_wrap=True)
        code = run_with_reload(arguments, Path.cwd(), SYSTEM_CLOCK)
    raise typer.Exit(code)


@contextmanager
def _mission_control(app: str, port: int | None) -> Generator[str | None]:
    """Serve Mission Control; yields its address, or None if the extra [web] or the page files are
    not installed."""
    try:
        standalone = import_standalone()
        standalone.check_page_files()
    except (Stop, Refused) as missing:
        terminal.messages().print(str(missing), soft_wrap=True)
        yield None
        return
    url = _url_of(app)
    listener = standalone.listen_preferring(standalone.DEFAULT_PORT if port is None else port)
    with standalone.serve_in_thread(url, listener) as address:
        yield address


def _url_of(app: str) -> str | None:
    """The application's store address; None (the configured one) if it cannot be imported."""
    try:
        return load_app(app).url
    except BadAppPath:
        return None


def run_with_reload(arguments: list[str], folder: Path, clock: Clock) -> int:
    """Run a worker and restart it on changes, until Ctrl-C; the exit code."""
    out = terminal.messages()
    out.print(f"Watching {folder} for changes. Ctrl-C stops.")
    before = snapshot(folder)
    worker = TiedProcess(arguments)
    exit_printed = False
    try:
        while True:
            clock.pause(_POLL_S)
            now = snapshot(folder)
            files = changed(before, now)
            before = now
            if files:
                more = f" and {len(files) - 1} more" if len(files) > 1 else ""
                out.print(f"{_relative(files[0], folder)}{more} changed: restarting the worker.")
                worker.stop(_GRACE_S)
                worker, exit_printed = TiedProcess(arguments), False
            elif worker.exit_code is not None and not exit_printed:
                exit_printed = True
                out.print(f"The worker ended (exit {worker.exit_code}). Waiting for a change.")
    except KeyboardInterrupt:
        out.print("Stopping.")
    finally:
        worker.stop(_GRACE_S)
    return OK


def _relative(path: str, folder: Path) -> str:
    return str(Path(path).relative_to(folder))
