"""``forge send``, ``forge events list`` and ``forge events waiting``: events and who waits."""

import sys
from datetime import datetime
from typing import Annotated

import typer

from forge_jobs.core import payload as json_payload
from forge_jobs.core.events import SentEvent
from forge_jobs.ops import steps
from forge_jobs.ops.actions import Store
from forge_jobs.ops.event_actions import EventActions
from forge_jobs.ops.steps import EventsPage, WaitsPage
from forge_jobs.ops.views import to_json

from . import terminal
from .options import AsJson, Url
from .session import actor, with_store, with_store_time

app = typer.Typer(
    no_args_is_help=True,
    help="List events, and the jobs that wait for one. `forge send` sends.\n\n"
    "\b\nExample:\n  forge events waiting --name paid",
)

Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Only events of this name.")
]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Only this key; needs --name.")
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="Lines per page.")]


def send(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The event's name.")],
    payload: Annotated[
        str, typer.Argument(metavar="JSON", help="What waiting jobs get; - reads stdin.")
    ] = "null",
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Jobs wait for a name and a key.")
    ] = None,
    dedupe_key: Annotated[
        str | None,
        typer.Option("--dedupe-key", metavar="KEY", help="Send only once per name and this key."),
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", metavar="ID", help="Send it to this job alone.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Send an event: jobs that wait for its name and key go on.

    It is kept for 7 days, so that a job that waits later finds it.

    \b
    Example:
      forge send paid '{"cents": 1200}' --key 4711
    """
    value = json_payload.decode_text(sys.stdin.read() if payload == "-" else payload)

    async def work(store: Store) -> SentEvent:
        return await EventActions(store, actor=actor()).send(
            name, value, key=key, dedupe_key=dedupe_key, job_id=job
        )

    sent = with_store(url, work)
    if as_json:
        terminal.write_json(to_json(sent))
    elif sent.duplicate:
        terminal.console().print("Not sent: an event of this name has that dedupe key.")
    else:
        text = f"Sent {name}: {terminal.plural(sent.resumed, 'job')} resumed."
        terminal.console().print(text, soft_wrap=True)


@app.command("list")
def list_events(
    name: Name = None,
    key: Key = None,
    limit: Limit = 50,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="CURSOR", help="Continue after an earlier page."),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List stored events, newest first.

    \b
    Example:
      forge events list --name paid --key 4711
    """

    async def work(store: Store) -> EventsPage:
        return await steps.events(store, name=name, key=key, limit=limit, before=before)

    page, now = with_store(url, lambda store: with_store_time(store, work(store)))
    if as_json:
        terminal.write_json(page.to_json())
    else:
        _print_events(page, now)


@app.command("waiting")
def list_waits(
    name: Name = None,
    key: Key = None,
    limit: Limit = 50,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="CURSOR", help="Continue after an earlier page."),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List suspended jobs with the events that they wait for.

    \b
    Example:
      forge events waiting --name paid --key 4711
    """

    async def work(store: Store) -> WaitsPage:
        return await steps.waits(store, name=name, key=key, limit=limit, after=after)

    page, now = with_store(url, lambda store: with_store_time(store, work(store)))
    if as_json:
        terminal.write_json(page.to_json())
    else:
        _print_waits(page, now)


def _print_events(page: EventsPage, now: datetime) -> None:
    out = terminal.console()
    if not page.events:
        out.print("No events match.")
        return
    rows = terminal.table(
        "EVENT", "KEY", "SENT", "KEPT", "PAYLOAD", shrink=("EVENT", "KEY", "PAYLOAD")
    )
    for event in page.events:
        payload = terminal.one_line(to_json(event.payload).decode(), 60)
        sent = terminal.ago(event.sent_at, now)
        kept = terminal.short(max(0.0, (event.ends_at - now).total_seconds()))
        rows.add_row(event.name, terminal.cut(event.key or "-"), sent, kept, terminal.cut(payload))
    out.print(rows)
    if page.next is not None:
        out.print(f"\nMore: repeat with --before {page.next}", soft_wrap=True)


def _print_waits(page: WaitsPage, now: datetime) -> None:
    out = terminal.console()
    if not page.waits:
        out.print("No job waits for such an event.")
        return
    rows = terminal.table(
        "JOB", "KIND", "EVENT", "KEY", "SINCE", "UNTIL", shrink=("KIND", "EVENT", "KEY")
    )
    for wait in page.waits:
        until = "for ever" if wait.deadline is None else terminal.ago(wait.deadline, now)
        key = "this job" if wait.key == wait.job_id else wait.key or "no key"
        since = terminal.ago(wait.began_at, now)
        rows.add_row(wait.job_id, wait.kind, wait.name, terminal.cut(key), since, until)
    out.print(rows)
    if page.next is not None:
        out.print(f"\nMore: repeat with --after {page.next}", soft_wrap=True)
