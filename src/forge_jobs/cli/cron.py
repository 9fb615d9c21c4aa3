"""``forge cron``: lists, creates, changes and runs schedules."""

import sys
from datetime import datetime
from typing import Annotated, Any, TypeAlias, TypeVar, cast
from zoneinfo import ZoneInfo

import typer
from msgspec import UNSET, UnsetType
from rich.text import Text

from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core import payload as json_payload
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import seconds
from forge_jobs.core.job import NewJob
from forge_jobs.core.schedule_ticks import spec
from forge_jobs.ops.actions import Store
from forge_jobs.ops.schedules import FireView, ScheduleActions, ScheduleChange, ScheduleView
from forge_jobs.ops.views import to_json

from . import terminal
from .cron_show import show
from .options import AsJson, Unchecked, Url, as_span
from .session import actor, with_store, with_store_time

app = typer.Typer(
    no_args_is_help=True,
    help="List, create, change and run schedules.\n\n"
    '\b\nExample:\n  forge cron create nightly "0 3 * * *" cleanup --tz Europe/Paris',
)

T = TypeVar("T")
_SHRINKABLE = ("NAME", "WHEN", "ZONE", "KIND")
Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.")]
Zone: TypeAlias = Annotated[
    str | None, typer.Option("--tz", metavar="ZONE", help="IANA time zone; default UTC.")
]
Payload: TypeAlias = Annotated[
    str | None,
    typer.Option("--payload", metavar="JSON", help="Arguments by name; - reads stdin."),
]
Queue: TypeAlias = Annotated[
    str | None,
    typer.Option("--queue", metavar="NAME", help="Default: the queue of the kind."),
]
Missed: TypeAlias = Annotated[
    str | None,
    typer.Option("--missed", metavar="WORD", help="Missed ticks: skip, once or all."),
]
MissedLimit: TypeAlias = Annotated[
    int | None, typer.Option("--missed-limit", metavar="N", help="How many with all; default 100.")
]
Overlap: TypeAlias = Annotated[
    str | None,
    typer.Option("--overlap", metavar="WORD", help="While its last job is live: skip or allow."),
]
Jitter: TypeAlias = Annotated[
    str | None, typer.Option("--jitter", metavar="SPAN", help="Start up to that much later.")
]
Attempts: TypeAlias = Annotated[
    int | None, typer.Option("--max-attempts", metavar="N", help="Attempts of each job.")
]


@app.command("list")
def list_schedules(url: Url = None, as_json: AsJson = False) -> None:
    """List schedules with their next and last ticks.

    \b
    Example:
      forge cron list
    """
    views, now = with_store(url, lambda store: with_store_time(store, _actions(store).all()))
    if as_json:
        terminal.write_json(to_json({"schedules": views}))
        return
    out = terminal.console()
    if not views:
        out.print("No schedules yet: declare one with @forge.cron, or use `forge cron create`.")
        return
    rows = terminal.table("NAME", "WHEN", "ZONE", "KIND", "NEXT", "LAST", shrink=_SHRINKABLE)
    for view in views:
        following = Text("off", style="yellow") if not view.enabled else _ago(view.next_at, now)
        rows.add_row(
            view.name, view.expression, view.tz, view.kind, following, _ago(view.last_at, now)
        )
    out.print(rows)
    for view in views:
        if view.error is not None:
            out.print(Text(f"! {view.name}: {view.error}", style="red"))


@app.command()
def create(
    name: Name,
    expression: Annotated[
        str, typer.Argument(metavar="EXPRESSION", help="5 fields, 6 with seconds first, @daily…")
    ],
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The task's kind.")],
    payload: Payload = None,
    tz: Zone = None,
    queue: Queue = None,
    missed: Missed = None,
    missed_limit: MissedLimit = None,
    overlap: Overlap = None,
    jitter: Jitter = None,
    max_attempts: Attempts = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Do not fire yet.")] = False,
    force: Unchecked = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Create a schedule. Its jobs have what the task declares.

    \b
    Example:
      forge cron create nightly "0 3 * * *" cleanup --tz Europe/Paris
      forge cron create poll "*/10 * * * * *" poll --missed all --payload '{"n": 1}'
    """
    options: dict[str, Any] = {
        "queue": queue,
        "max_attempts": max_attempts,
        "tz": tz,
        "missed": missed,
        "missed_limit": missed_limit,
        "overlap": overlap,
        "jitter": None if jitter is None else as_span(jitter),
    }
    given = {field: value for field, value in options.items() if value is not None}
    data = b"{}" if payload is None else _arguments(payload)
    job = NewJob(kind=kind, queue=DEFAULT_QUEUE, payload=data)
    schedule = spec(job, expression, name=name, where=f"schedule {name!r}", **given)
    remedy = None if force else "--force"

    async def work(store: Store) -> ScheduleView:
        return await _actions(store).create(schedule, enabled=not disabled, remedy=remedy)

    _print_schedule(with_store(url, work), as_json)


@app.command("set")
def set_schedule(
    name: Name,
    expression: Annotated[
        str | None, typer.Option("--cron", metavar="EXPRESSION", help="When it fires.")
    ] = None,
    payload: Payload = None,
    tz: Zone = None,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="NAME", help="A queue, or auto for the kind's.")
    ] = None,
    missed: Missed = None,
    missed_limit: MissedLimit = None,
    overlap: Overlap = None,
    jitter: Jitter = None,
    max_attempts: Attempts = None,
    force: Unchecked = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Change a schedule; workers apply it within a second.

    \b
    Example:
      forge cron set nightly --cron "30 3 * * *" --missed skip
    """
    change = ScheduleChange(
        expression=_or_unset(expression),
        zone=_or_unset(tz),
        queue=None if queue == "auto" else _or_unset(queue),
        payload=UNSET if payload is None else _arguments(payload),
        missed=_or_unset(missed),
        missed_limit=_or_unset(missed_limit),
        overlap=_or_unset(overlap),
        jitter_s=UNSET if jitter is None else seconds(as_span(jitter), field="--jitter"),
        max_attempts=_or_unset(max_attempts),
    )
    if change == ScheduleChange():
        raise BadOption('say what to set, for example --cron "0 3 * * *"')
    remedy = None if force else "--force"
    _print_schedule(
        with_store(url, lambda store: _actions(store).edit(name, change, remedy=remedy)), as_json
    )


@app.command()
def run(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Enqueue the job of a schedule now, and print its id.

    \b
    Example:
      forge cron run nightly
    """
    fire = with_store(url, lambda store: _actions(store).trigger(name))
    if as_json:
        terminal.write_json(to_json({"id": fire.job_id, "outcome": fire.outcome}))
        return
    terminal.console().print(fire.job_id)
    if fire.outcome == "skipped":
        terminal.messages().print("Its last job is still live (overlap: skip): this is that job.")


@app.command()
def history(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="How many.")] = 20,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show the last ticks of a schedule.

    \b
    Example:
      forge cron history nightly
    """

    async def work(store: Store) -> tuple[ScheduleView, tuple[FireView, ...]]:
        actions = _actions(store)
        return await actions.get(name), await actions.history(name, limit=limit)

    view, fires = with_store(url, work)
    if as_json:
        terminal.write_json(to_json({"schedule": name, "fires": fires}))
        return
    rows = terminal.table("TICK", "OUTCOME", "LATE", "MISSED", "JOB", right=("LATE", "MISSED"))
    for fire in fires:
        rows.add_row(
            _local(fire.tick, view.tz),
            fire.outcome,
            terminal.short(fire.late_s),
            str(fire.missed or "-"),
            fire.job_id or "-",
        )
    terminal.console().print(rows if fires else "No tick yet.")


@app.command()
def enable(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Enable a schedule from its next tick on.

    \b
    Example:
      forge cron enable nightly
    """
    _print_schedule(with_store(url, lambda store: _actions(store).enable(name)), as_json)


@app.command()
def disable(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Disable a schedule; its jobs stay.

    \b
    Example:
      forge cron disable nightly
    """
    _print_schedule(with_store(url, lambda store: _actions(store).disable(name)), as_json)


@app.command()
def delete(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Delete a schedule. The next worker declares one from code again: disable that one instead.

    \b
    Example:
      forge cron delete nightly
    """
    with_store(url, lambda store: _actions(store).delete(name))
    if as_json:
        terminal.write_json(to_json({"deleted": name}))
    else:
        terminal.console().print(f"Schedule {name} is deleted.")


def _actions(store: Store) -> ScheduleActions:
    return ScheduleActions(store, actor=actor())


def _or_unset(value: T | None) -> T | UnsetType:
    return UNSET if value is None else value


def _arguments(text: str) -> bytes:
    given = json_payload.decode_text(sys.stdin.read() if text == "-" else text)
    if not isinstance(given, dict):
        raise BadOption("--payload must be an object of arguments by name, such as '{\"a\": 1}'")
    return json_payload.encode(cast("dict[str, Any]", given), what="--payload")


def _ago(time: datetime | None, now: datetime) -> Text:
    return Text("-" if time is None else terminal.ago(time, now))


def _local(time: datetime, zone: str) -> str:
    return f"{time.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M:%S}"


def _print_schedule(view: ScheduleView, as_json: bool) -> None:
    if as_json:
        terminal.write_json(view.to_json())
        return
    state = "on" if view.enabled else "off"
    source = "code" if view.declared else "an operator"
    following = "-" if view.next_at is None else f"{_local(view.next_at, view.tz)} {view.tz}"
    pairs = [
        ("schedule", view.name),
        ("state", state if view.error is None else f"{state}: {view.error}"),
        ("when", f"{view.expression} in {view.tz}"),
        ("next", following),
        ("kind", view.kind),
        ("queue", view.queue or "that of the kind"),
        ("missed", view.missed if view.missed != "all" else f"all, up to {view.missed_limit}"),
        ("overlap", view.overlap),
        ("declared by", f"{source}, edited since" if view.edited else source),
    ]
    if view.jitter_s:
        pairs.append(("jitter", terminal.span(view.jitter_s)))
    terminal.console().print(terminal.facts(pairs))


app.command("show")(show)
