"""``forge jobs list`` and ``forge jobs show``: queries about jobs."""

import asyncio
import json
from datetime import datetime
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from forge_jobs.core import job_query
from forge_jobs.core.selection import Order, parse_order
from forge_jobs.core.status import JobStatus
from forge_jobs.ops import queries
from forge_jobs.ops.actions import Store
from forge_jobs.ops.story import StoryView, story
from forge_jobs.ops.views import ErrorView, JobsPage, JobSummary, JobView, Reason, to_json

from . import bulk, terminal
from .options import (
    AsJson,
    ErrorText,
    Kind,
    NewerThan,
    OlderThan,
    QueryLine,
    Queue,
    Statuses,
    Tag,
    Url,
    filter_of,
)
from .session import with_query, with_store, with_store_time
from .steps import list_steps

app = typer.Typer(
    no_args_is_help=True,
    help="List, show, retry, cancel and delete jobs.\n\n"
    "\b\nExample:\n  forge jobs list --status dead",
)

_LOGS_SHOWN = 20
_ERRORS_SHOWN = 5


@app.command("list")
def list_jobs(
    queue: Queue = None,
    kind: Kind = None,
    status: Statuses = None,
    tag: Tag = None,
    error: ErrorText = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    query: QueryLine = None,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort",
            metavar="TIME",
            help="ended (dead, cancelled), due (scheduled, failed) or started (running); with - "
            "the latest first. Default: -enqueued.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="Jobs per page.")] = 50,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="CURSOR", help="Continue after an earlier page."),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first.

    \b
    Example:
      forge jobs list --queue mail --status dead --limit 20
      forge jobs list --query 'kind:send_mail to:ann@ error:timeout since:1h'
    """
    line = None if query is None else job_query.parse(query)
    order = Order.NEWEST if sort is None else parse_order(sort)
    chosen = filter_of(
        queue=queue,
        kind=kind,
        statuses=status,
        tag=tag,
        error=error,
        older_than=older_than,
        newer_than=newer_than,
    )

    async def work(store: Store) -> JobsPage:
        return await queries.jobs(
            store, await with_query(store, chosen, line), limit=limit, after=after, order=order
        )

    page, now = with_store(url, lambda store: with_store_time(store, work(store)))
    if as_json:
        terminal.write_json(page.to_json())
    else:
        _print_page(page, now)


@app.command("show")
def show_job(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Also show fields with secret-looking names.")
    ] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show one job in full, with its errors, its log, why it is not running, what made it and what
    it made.

    \b
    Example:
      forge jobs show 01JABCDEFGHJKMNPQRSTVWXYZ0
    """

    async def work(store: Store) -> tuple[JobView, StoryView]:
        return await asyncio.gather(
            queries.job(store, job_id, reveal=reveal), story(store, job_id, reveal=reveal)
        )

    (view, told), now = with_store(url, lambda store: with_store_time(store, work(store)))
    if as_json:
        terminal.write_json(to_json({**msgspec.to_builtins(view), "story": told}))
        return
    _print_job(view, now)
    _print_links(told)


def _print_page(page: JobsPage, now: datetime) -> None:
    out = terminal.console()
    if not page.jobs:
        text = "No jobs match."
        if page.next is not None:
            text = f"None so far. To continue, repeat with --after {page.next}"
        out.print(text)
        return
    rows = terminal.table(
        "ID", "KIND", "QUEUE", "STATE", "TRIES", "WHEN", right=("TRIES",), shrink=("KIND", "QUEUE")
    )
    for job in page.jobs:
        tries = f"{job.attempts}/{job.max_attempts}"
        rows.add_row(
            job.id, job.kind, job.queue, terminal.status(job.status), tries, _when(job, now)
        )
    out.print(rows)
    if page.next is not None:
        out.print(f"\nMore: repeat with --after {page.next}", soft_wrap=True)


def _when(job: JobSummary, now: datetime) -> str:
    match job.status:
        case JobStatus.SCHEDULED | JobStatus.FAILED:
            return terminal.ago(job.run_at, now) if job.run_at > now else "due"
        case JobStatus.RUNNING if job.started_at is not None:
            return f"for {terminal.short((now - job.started_at).total_seconds())}"
        case _ if job.finished_at is not None:
            return terminal.ago(job.finished_at, now)
        case _:
            return terminal.ago(job.enqueued_at, now)


def _print_job(job: JobView, now: datetime) -> None:
    out = terminal.console()
    out.print(Text.assemble((job.kind, "bold"), "  ", terminal.status(job.status)))
    out.print(terminal.facts(_facts(job, now)))
    _section("Payload", json.dumps(job.payload, indent=2, ensure_ascii=False))
    if job.result is not None:
        _section("Result", json.dumps(job.result, indent=2, ensure_ascii=False))
    if job.errors:
        rows = terminal.table("", "", "", fold=("",))
        for error in job.errors[-_ERRORS_SHOWN:]:
            rows.add_row(
                terminal.ago(error.at, now), f"attempt {error.attempt}", error.message.strip()
            )
        _heading(f"Errors ({len(job.errors)})")
        rows.show_header = False
        out.print(rows)
        _print_traceback(job.errors)
        if job.errors[-1].group is not None:
            out.print(f"\nFailures like this: forge errors show {job.errors[-1].group}")
    if job.logs:
        _heading(f"Log ({terminal.plural(len(job.logs), 'line')})")
        for line in job.logs[-_LOGS_SHOWN:]:
            out.print(f"{line.at:%H:%M:%S} {line.level:<7} {line.message}", soft_wrap=True)


def _print_links(told: StoryView) -> None:
    out = terminal.console()
    parent = told.parent
    if parent is not None:
        origin = f"schedule {parent.schedule}" if parent.schedule else f"job {parent.id}"
        kind = "" if parent.job is None else f" ({parent.job.kind}, {parent.job.status})"
        _heading("Made by")
        out.print(f"{origin}{kind}, {parent.via}", soft_wrap=True)
    for title, jobs in (("Made", told.children.jobs), ("Held by", told.holders)):
        if jobs:
            _heading(title)
            for job in jobs:
                out.print(f"{job.id} {job.kind} {job.status}", soft_wrap=True)
    if told.children.more:
        out.print(f"More: forge jobs list 'parent:{told.id}'", soft_wrap=True)


def _print_traceback(errors: tuple[ErrorView, ...]) -> None:
    """The traceback of the last attempt that has one."""
    shown = next((error for error in reversed(errors) if error.traceback), None)
    if shown is None:
        return
    others = sum(1 for error in errors if error.traceback) - 1
    more = f" (--json shows {others} more)" if others else ""
    _heading(f"Traceback of attempt {shown.attempt}{more}")
    # Folded at the width of the terminal; --json has the lines as they are.
    terminal.console().print(Text(shown.traceback or ""), overflow="fold")


def _facts(job: JobView, now: datetime) -> list[tuple[str, str | Text | None]]:
    def at(time: datetime | None) -> str | None:
        return None if time is None else terminal.clock_time(time, now)

    pairs: list[tuple[str, str | Text | None]] = [("id", job.id), ("queue", job.queue)]
    reasons = () if job.status is JobStatus.DONE else job.why
    pairs.extend(("why" if index == 0 else "", _why(r, now)) for index, r in enumerate(reasons))
    progress = None
    if job.progress is not None:
        progress = f"{job.progress:.0%} {job.progress_note or ''}".strip()
    pairs.extend(
        [
            ("progress", progress),
            ("attempts", f"{job.attempts} of {job.max_attempts}"),
            ("crashes", str(job.crashes) if job.crashes else None),
            ("throttles", str(job.throttles) if job.throttles else None),
            ("priority", str(job.priority) if job.priority else None),
            ("enqueued", at(job.enqueued_at)),
            ("run at", at(job.run_at) if _is_due_later(job) else None),
            ("started", at(job.started_at)),
            ("finished", at(job.finished_at)),
            ("ran", None if job.ran_s is None else terminal.span(job.ran_s)),
            ("expires", at(job.expires_at)),
            ("timeout", None if job.timeout_s is None else terminal.span(job.timeout_s)),
            ("options", json.dumps(job.options, ensure_ascii=False) if job.options else None),
            ("worker", job.worker),
            ("cancel asked", at(job.cancel_requested_at)),
            ("tags", ", ".join(job.tags) or None),
            ("dedupe key", job.dedupe_key),
            ("lane", job.lane),
            ("limit", job.limit_key),
            ("trace", job.trace),
        ]
    )
    return pairs


def _is_due_later(job: JobView) -> bool:
    """Whether its due time says something: that of a suspended job is the end of its wait."""
    return job.run_at > job.enqueued_at and job.status is not JobStatus.SUSPENDED


def _why(reason: Reason, now: datetime) -> Text:
    text = Text(reason.text)
    if reason.until is not None:
        text.append(f" until {terminal.clock_time(reason.until, now)}")
    if reason.remedy is not None:
        text.append(f"\n→ {reason.remedy}", style="bright_black")
    return text


def _heading(title: str) -> None:
    terminal.console().print(Text(f"\n{title}", style="bold"))


def _section(title: str, body: str) -> None:
    _heading(title)
    terminal.console().print(body, soft_wrap=True)


app.command("steps")(list_steps)
bulk.add_to(app)
