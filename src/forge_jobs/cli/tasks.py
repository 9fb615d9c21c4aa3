"""``forge tasks``: what each kind or queue did, and what waits."""

from typing import Annotated

import typer

from forge_jobs.ops import tasks
from forge_jobs.ops.metrics import DurationStats
from forge_jobs.ops.tasks import TasksPage, TaskView
from forge_jobs.ops.views import to_json

from . import terminal
from .options import AsJson, Url
from .session import with_store

app = typer.Typer(
    no_args_is_help=True,
    help="What each kind or queue did: throughput, failures, times.\n\n"
    "\b\nExample:\n  forge tasks list --range 24h",
)

Range = Annotated[
    str, typer.Option("--range", metavar="SPAN", help="1h, 6h, 24h, 7d or 30d, up to now.")
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="Rows at most.")]
After = Annotated[
    str | None, typer.Option("--after", metavar="CURSOR", help="The `next` of the page before.")
]
_BARS = 40


@app.command("list")
def list_tasks(
    range_name: Range = "1h",
    by: Annotated[str, typer.Option("--by", metavar="WORD", help="kind or queue.")] = "kind",
    sort: Annotated[
        str,
        typer.Option(
            "--sort",
            metavar="WORD",
            help="share, name, throughput, failures, wait, run or backlog.",
        ),
    ] = "share",
    limit: Limit = 100,
    after: After = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List kinds, those first that took most of the run time.

    \b
    Example:
      forge tasks list --range 24h --sort failures
    """
    page = with_store(
        url,
        lambda store: tasks.tasks(
            store, range_name=range_name, by=by, sort=sort, limit=limit, after=after
        ),
    )
    if as_json:
        terminal.write_json(page.to_json())
        return
    out = terminal.console()
    if not page.tasks:
        out.print("No jobs yet: forge enqueue KIND stores one.")
        return
    _print_page(page)


@app.command("show")
def show_task(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The kind of the task.")],
    range_name: Range = "1h",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show one kind: its numbers, and how long its runs took.

    \b
    Example:
      forge tasks show send_mail --range 7d
    """
    detail = with_store(url, lambda store: tasks.task(store, kind, range_name=range_name))
    if as_json:
        terminal.write_json(to_json(detail))
        return
    out, task = terminal.console(), detail.task
    out.print(
        terminal.facts([
            ("kind", task.name),
            ("queues", ", ".join(task.queues)),
            ("since", f"{detail.since:%Y-%m-%d %H:%M} UTC"),
            ("enqueued", f"{task.enqueued:,} ({task.in_per_s:g} per second)"),
            ("done", f"{task.done:,}"),
            ("failed", f"{task.failed:,} ({_percent(task.failure_rate)})"),
            ("wait", _quantiles(task.waited)),
            ("run", _quantiles(task.ran)),
            ("backlog", _backlog(task)),
            ("running", f"{task.running:,}"),
        ])
    )  # fmt: skip
    most = max((bucket.runs for bucket in detail.histogram), default=0)
    for bucket in detail.histogram:
        bar = "█" * round(bucket.runs / most * _BARS)
        upper = "longer" if bucket.to_s is None else f"< {terminal.span(bucket.to_s)}"
        out.print(f"{upper:>10}  {bucket.runs:>9,}  {bar}")


def _print_page(page: TasksPage) -> None:
    rows = terminal.table(
        page.by.upper(), "DONE", "FAILED", "PER S", "WAIT P95", "RUN P95", "SHARE", "BACKLOG",
        right=("DONE", "FAILED", "PER S", "WAIT P95", "RUN P95", "SHARE", "BACKLOG"),
        shrink=(page.by.upper(),),
    )  # fmt: skip
    for task in page.tasks:
        rows.add_row(
            terminal.cut(task.name),
            terminal.number(task.done),
            terminal.alarm(task.failed),
            f"{task.per_s:g}",
            terminal.span(task.waited.p95_s),
            terminal.span(task.ran.p95_s),
            _percent(task.run_share),
            terminal.number(task.backlog),
        )
    out = terminal.console()
    out.print(rows)
    if not page.complete:
        terminal.messages().print("There are too many kinds: the oldest periods are left out.")
    if page.next is not None:
        terminal.messages().print(f"More: --after {page.next!r}")


def _quantiles(stats: DurationStats) -> str:
    if not stats.count:
        return "no runs"
    named = (("p50", stats.p50_s), ("p95", stats.p95_s), ("p99", stats.p99_s))
    return ", ".join(f"{name} {terminal.span(value)}" for name, value in named)


def _backlog(task: TaskView) -> str:
    if not task.backlog:
        return "0"
    if task.empty_in_s is None:
        return f"{task.backlog:,}, not shrinking"
    return f"{task.backlog:,}, empty in {terminal.span(task.empty_in_s)}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
