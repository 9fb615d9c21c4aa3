"""``forge workers``: lists worker processes; ``quiet`` makes one claim no more jobs."""

from datetime import datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from forge_jobs.ops import queries
from forge_jobs.ops.actions import JobActions, Store
from forge_jobs.ops.views import WorkerView, to_json

from . import terminal
from .options import AsJson, Url
from .session import actor, with_store, with_store_time

app = typer.Typer()


@app.callback(invoke_without_command=True)
def workers(context: typer.Context, url: Url = None, as_json: AsJson = False) -> None:
    """List worker processes; `quiet` makes one claim no more jobs.

    \b
    Example:
      forge workers
      forge workers quiet 01JABCDEF
    """
    if context.invoked_subcommand is not None:
        return
    views, now = with_store(url, lambda store: with_store_time(store, queries.workers(store)))
    if as_json:
        terminal.write_json(to_json({"workers": views}))
    elif not views:
        terminal.console().print("No worker is running: forge worker APP starts one.")
    else:
        terminal.console().print(worker_table(views, now))


@app.command()
def quiet(
    worker: Annotated[
        str, typer.Argument(metavar="HOST", help="Host id, the start of it, or the label.")
    ],
    off: Annotated[bool, typer.Option("--off", help="Claim jobs again.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a worker claim no more jobs; its running jobs continue.

    \b
    Example:
      forge workers quiet 01JABCDEF
    """

    async def work(store: Store) -> str:
        return await JobActions(store, actor=actor()).quiet(worker, quiet=not off)

    host_id = with_store(url, work)
    if as_json:
        terminal.write_json(to_json({"host_id": host_id, "quiet": not off}))
    else:
        verb = "takes jobs again" if off else "takes no more jobs"
        terminal.console().print(f"{host_id} {verb}.")


def worker_table(views: tuple[WorkerView, ...], now: datetime) -> Table:
    """Worker processes in 80 columns; the host id is below the label."""
    numbers = ("PID", "RUNS", "MEMORY", "UP")
    rows = terminal.table("WORKER", *numbers, "QUEUES", right=numbers, fold=("WORKER", "QUEUES"))
    for view in views:
        name = Text(view.label)
        if view.quiet:
            name.append(" (quiet)", style="yellow")
        if view.host_id != view.label:
            name.append(f"\n{view.host_id}", style="bright_black")
        rows.add_row(
            name,
            str(view.pid),
            f"{view.running}/{sum(view.slots.values())}",
            terminal.memory(view.memory_bytes),
            terminal.short((now - view.started_at).total_seconds()),
            " ".join(f"{queue}:{view.slots.get(queue, 0)}" for queue in view.queues),
        )
    return rows
