"""``forge dev``: one worker that starts anew whenever the source changes."""

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock

from . import show
from .failing import OK
from .options import Url
from .tethered import Tethered
from .watching import changed, snapshot

_LOOK_S: Final = 0.5
_GRACE_S: Final = 5.0


def dev(
    app: Annotated[
        str, typer.Argument(metavar="APP", help="Where the Forge object is: pkg.module:name.")
    ],
    queues: Annotated[
        str | None, typer.Option("--queues", metavar="LIST", help="As for forge worker.")
    ] = None,
    url: Url = None,
) -> None:
    """Run one worker and restart it when a source file below this folder changes.

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
    raise typer.Exit(reload_forever(arguments, Path.cwd(), SYSTEM_CLOCK))


def reload_forever(arguments: list[str], folder: Path, clock: Clock) -> int:
    """Run, look, restart, until Ctrl-C; the exit code."""
    out = show.messages()
    out.print(f"Watching {folder} for changes. Ctrl-C stops. Mission Control comes later.")
    seen = snapshot(folder)
    worker = Tethered(arguments)
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
                worker, told = Tethered(arguments), False
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
