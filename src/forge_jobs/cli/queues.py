"""``forge queues``: lists queues, changes their settings, pauses and resumes them."""

from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec import UNSET, UnsetType
from rich.table import Table
from rich.text import Text

from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import seconds
from forge_jobs.core.status import JobStatus
from forge_jobs.ops import queries
from forge_jobs.ops.actions import JobActions, QueueChange, Store
from forge_jobs.ops.views import QueueView, to_json

from . import terminal
from .options import AsJson, Url, as_span
from .session import actor, with_store

app = typer.Typer(
    no_args_is_help=True,
    help="List, set, pause and resume queues.\n\n"
    "\b\nExample:\n  forge queues set mail --workers 20",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue.")]
_FOREVER = ("forever", "for-ever", "never", "none")
LIVE_AND_DEAD = (
    JobStatus.PENDING,
    JobStatus.RUNNING,
    JobStatus.SCHEDULED,
    JobStatus.HELD,
    JobStatus.FAILED,
    JobStatus.SUSPENDED,
    JobStatus.DEAD,
)

_SHORT = {JobStatus.SCHEDULED: "SCHED", JobStatus.SUSPENDED: "SUSP"}


@app.command("list")
def list_queues(url: Url = None, as_json: AsJson = False) -> None:
    """List queues with their slots and counts.

    \b
    Example:
      forge queues list
    """
    views = with_store(url, queries.queues)
    if as_json:
        terminal.write_json(to_json({"queues": views}))
        return
    out = terminal.console()
    if not views:
        out.print("No queues yet: a worker declares them (forge worker APP --queues mail:20).")
        return
    out.print(queue_table(views))
    for view in views:
        for block in view.blocks:
            _print_block(view, block.text, block.remedy)
        for closed in view.scopes_closed:
            until = "" if closed.until is None else f" until {closed.until:%H:%M:%S} UTC"
            _warn(f"queue {view.name!r}: {closed.text}{until}", closed.remedy)


@app.command("set")
def set_queue(
    name: Name,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Slots over the whole cluster.")
    ] = None,
    retain_done: Annotated[
        str | None,
        typer.Option("--retain-done", metavar="SPAN", help="Keep done jobs, e.g. 7d or forever."),
    ] = None,
    retain_dead: Annotated[
        str | None, typer.Option("--retain-dead", metavar="SPAN", help="Keep dead jobs.")
    ] = None,
    retain_cancelled: Annotated[
        str | None, typer.Option("--retain-cancelled", metavar="SPAN", help="Keep cancelled jobs.")
    ] = None,
    backoff: Annotated[
        str | None,
        typer.Option("--backoff", metavar="WORD", help="on, off, or base:max such as 15s:1h."),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the queue if it does not exist yet.")
    ] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Change a queue's settings; workers apply them within a second.

    \b
    Example:
      forge queues set mail --workers 20 --retain-done 2d --backoff 15s:1h
    """
    enabled, base_s, max_s = _backoff(backoff)
    change = QueueChange(
        slots=UNSET if workers is None else workers,
        retain_done_s=_retention(retain_done, "--retain-done"),
        retain_dead_s=_retention(retain_dead, "--retain-dead"),
        retain_cancelled_s=_retention(retain_cancelled, "--retain-cancelled"),
        backoff_enabled=enabled,
        backoff_base_s=base_s,
        backoff_max_s=max_s,
    )
    if change == QueueChange() and not create:
        raise BadOption("say what to set, for example --workers 20")

    async def work(store: Store) -> QueueView:
        await JobActions(store, actor=actor()).set_queue(name, change, create=create)
        return await queries.queue(store, name)

    _print_queue(with_store(url, work), as_json)


@app.command()
def pause(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Start no more jobs of a queue; running jobs continue.

    \b
    Example:
      forge queues pause mail
    """

    async def work(store: Store) -> QueueView:
        await JobActions(store, actor=actor()).pause(name)
        return await queries.queue(store, name)

    _print_queue(with_store(url, work), as_json)


@app.command()
def resume(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Resume a paused queue.

    \b
    Example:
      forge queues resume mail
    """

    async def work(store: Store) -> QueueView:
        await JobActions(store, actor=actor()).resume(name)
        return await queries.queue(store, name)

    _print_queue(with_store(url, work), as_json)


@app.command()
def unthrottle(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Open a queue that a rate limit has closed.

    \b
    Example:
      forge queues unthrottle mail
    """

    async def work(store: Store) -> QueueView:
        await JobActions(store, actor=actor()).unthrottle(name)
        return await queries.queue(store, name)

    _print_queue(with_store(url, work), as_json)


def queue_table(views: Sequence[QueueView], shown: Sequence[JobStatus] = LIVE_AND_DEAD) -> Table:
    """Queues with their slots and counts, in 80 columns."""
    has_suspended = any(view.counts[JobStatus.SUSPENDED] for view in views)
    shown = [one for one in shown if one is not JobStatus.SUSPENDED or has_suspended]
    heads = [_SHORT.get(status, status.upper()) for status in shown]
    numbers = ("SLOTS", *heads, "LAG")
    rows = terminal.table("QUEUE", *numbers, right=numbers, shrink=("QUEUE",))
    for view in views:
        rows.add_row(
            view.name,
            f"{view.slots_live}/{view.slots}",
            *(_count(view, status) for status in shown),
            terminal.short(view.lag_s) if view.lag_s else "-",
        )
    return rows


def _count(view: QueueView, status: JobStatus) -> Text:
    jobs = view.counts[status]
    return terminal.alarm(jobs) if status is JobStatus.DEAD else terminal.number(jobs)


def _print_block(view: QueueView, text: str, remedy: str | None) -> None:
    waiting = any(view.counts[status] for status in (JobStatus.PENDING, JobStatus.HELD))
    if view.paused or view.throttled_until is not None or waiting:
        _warn(text, remedy)


def _warn(text: str, remedy: str | None) -> None:
    line = Text(f"! {text}", style="yellow")
    if remedy is not None:
        line.append(f"\n  → {remedy}", style="bright_black")
    terminal.console().print(line)


def _print_queue(view: QueueView, as_json: bool) -> None:
    if as_json:
        terminal.write_json(view.to_json())
        return
    backoff = f"{terminal.span(view.backoff_base_s)} to {terminal.span(view.backoff_max_s)}"
    state = "paused" if view.paused else "open"
    if view.throttled_until is not None:
        state += f", throttled until {view.throttled_until:%H:%M:%S} UTC"
    workers = terminal.plural(view.workers, "worker")
    pairs = [
        ("queue", view.name),
        ("state", state),
        ("slots", f"{view.slots} in the cluster, {view.slots_live} taken up by {workers}"),
        ("keeps done", terminal.retention(view.retain_done_s)),
        ("keeps dead", terminal.retention(view.retain_dead_s)),
        ("keeps cancelled", terminal.retention(view.retain_cancelled_s)),
        ("backoff", backoff if view.backoff_enabled else "the tasks' own, or the default"),
    ]
    terminal.console().print(terminal.facts(pairs))


def _retention(text: str | None, field: str) -> float | UnsetType | None:
    if text is None:
        return UNSET
    if text.lower() in _FOREVER:
        return None
    return seconds(as_span(text), field=field)


def _backoff(
    text: str | None,
) -> tuple[bool | UnsetType, float | UnsetType, float | UnsetType]:
    match text:
        case None:
            return UNSET, UNSET, UNSET
        case "on":
            return True, UNSET, UNSET
        case "off":
            return False, UNSET, UNSET
        case _:
            base, colon, maximum = text.partition(":")
            if not colon:
                raise BadOption(f"--backoff {text!r}: use on, off, or base:max such as 15s:1h")
            return (
                True,
                seconds(as_span(base), field="--backoff base"),
                seconds(as_span(maximum), field="--backoff max"),
            )
