"""``forge errors``: failures grouped by their cause."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, TypeAlias

import typer
from rich.table import Table
from rich.text import Text

from forge_jobs.core.error_groups import GroupState
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import seconds
from forge_jobs.core.selection import Selection
from forge_jobs.ops import error_groups as ops
from forge_jobs.ops.actions import Action, Store
from forge_jobs.ops.error_groups import (
    ErrorGroupActions,
    ErrorGroupDetail,
    ErrorGroupsPage,
    ErrorGroupView,
    GroupOrder,
    ValueCount,
)
from forge_jobs.ops.views import to_json

from . import terminal
from .bulk import BulkRequest, run_bulk
from .options import AsJson, Kind, Queue, Url, Yes, as_span
from .session import actor, with_store

app = typer.Typer(
    no_args_is_help=True,
    help="List, inspect, resolve and retry groups of failures with the same cause.\n\n\b\n"
    "Example:\n  forge errors list --since 1h",
)

Group = Annotated[str, typer.Argument(metavar="ID", help="The id of the group.")]
Since: TypeAlias = Annotated[
    str, typer.Option("--since", metavar="SPAN", help="Seen within, e.g. 1h; at most 14d.")
]
States: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="STATE", help="open, resolved or returned; may be repeated."),
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Print how many jobs; change nothing.")
]
_STYLE = {GroupState.OPEN: "red", GroupState.RETURNED: "bold red", GroupState.RESOLVED: "green"}
_MAX_TRACEBACK_LINES = 40


@app.command("list")
def list_errors(
    since: Since = "24h",
    kind: Kind = None,
    queue: Queue = None,
    state: States = None,
    sort: Annotated[
        str, typer.Option("--sort", metavar="ORDER", help="last_seen or count.")
    ] = GroupOrder.LAST_SEEN,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many.")] = 50,
    after: Annotated[
        str | None, typer.Option("--after", metavar="CURSOR", help="The next of the page before.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List groups of failures, the newest first.

    \b
    Example:
      forge errors list --since 1h --state open --sort count
    """
    span_s, states, order = _span_s(since), _states(state or ()), _order(sort)

    async def work(store: Store) -> ErrorGroupsPage:
        return await ops.error_groups(
            store, span_s=span_s, kind=kind, queue=queue, states=states, order=order, limit=limit,
            after=after,
        )  # fmt: skip

    page = with_store(url, work)
    if as_json:
        terminal.write_json(page.to_json())
    elif not page.groups:
        terminal.console().print(f"No failure within {since}.")
    else:
        terminal.console().print(group_table(page.groups, page.at))
        if page.next is not None:
            terminal.messages().print(f"more: --after {page.next}")


@app.command()
def show(group: Group, since: Since = "24h", url: Url = None, as_json: AsJson = False) -> None:
    """Show one group: counts, where it comes from, the newest traceback.

    \b
    Example:
      forge errors show 1c5002dee834
    """
    span_s = _span_s(since)
    found = with_store(url, lambda store: ops.error_group(store, group, span_s=span_s))
    if as_json:
        terminal.write_json(found.to_json())
    else:
        _print_detail(found, since)


@app.command()
def resolve(group: Group, url: Url = None, as_json: AsJson = False) -> None:
    """Mark a group as resolved; it is flagged as returned when it is seen again.

    \b
    Example:
      forge errors resolve 1c5002dee834
    """
    view = with_store(url, lambda store: ErrorGroupActions(store, actor=actor()).resolve(group))
    _print_changed(view, "resolved", as_json)


@app.command()
def reopen(group: Group, url: Url = None, as_json: AsJson = False) -> None:
    """Remove the mark of a resolved group.

    \b
    Example:
      forge errors reopen 1c5002dee834
    """
    view = with_store(url, lambda store: ErrorGroupActions(store, actor=actor()).reopen(group))
    _print_changed(view, "open", as_json)


@app.command()
def retry(
    group: Group,
    kind: Kind = None,
    queue: Queue = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Retry the failed and dead jobs whose last failed attempt is of a group, after a preview.

    \b
    Example:
      forge errors retry 1c5002dee834 --kind send --yes
    """
    selection = Selection(filter=ops.jobs_of(group, Action.RETRY, kind=kind, queue=queue))
    request = BulkRequest(Action.RETRY, selection, yes, dry_run, as_json)
    raise typer.Exit(with_store(url, lambda store: _act(store, group, request)))


@app.command()
def cancel(
    group: Group,
    kind: Kind = None,
    queue: Queue = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Cancel the waiting and running jobs of a group, after a preview.

    \b
    Example:
      forge errors cancel 1c5002dee834 --dry-run
    """
    selection = Selection(filter=ops.jobs_of(group, Action.CANCEL, kind=kind, queue=queue))
    request = BulkRequest(Action.CANCEL, selection, yes, dry_run, as_json)
    raise typer.Exit(with_store(url, lambda store: _act(store, group, request)))


async def _act(store: Store, group: str, request: BulkRequest) -> int:
    await ops.error_group(store, group)
    return await run_bulk(store, request)


def group_table(groups: Sequence[ErrorGroupView], now: datetime) -> Table:
    """One group per line."""
    rows = terminal.table("ID", "LAST", "COUNT", "STATE", "ERROR", "KINDS", right=("COUNT",),
                          shrink=("ERROR", "KINDS"))  # fmt: skip
    for group in groups:
        rows.add_row(
            group.id,
            terminal.ago(group.last_at, now),
            terminal.number(group.recent),
            Text(group.state, style=_STYLE[group.state]),
            terminal.cut(terminal.one_line(group.title, 200)),
            terminal.cut(", ".join(one.value for one in group.kinds)),
        )
    return rows


def _print_detail(found: ErrorGroupDetail, since: str) -> None:
    group, now = found.group, found.at
    resolved = None
    if group.resolved_at is not None:
        resolved = f"{terminal.clock_time(group.resolved_at, now)} by {group.resolved_by}"
    returned = None if group.returned_at is None else terminal.clock_time(group.returned_at, now)
    pairs = (
        ("error", group.title), ("frame", group.frame or None), ("latest", group.latest),
        ("state", Text(group.state, style=_STYLE[group.state])), ("resolved", resolved),
        ("returned", returned), ("failures", f"{group.count:,}, {group.recent:,} within {since}"),
        ("first seen", terminal.clock_time(group.first_at, now)),
        ("last seen", terminal.clock_time(group.last_at, now)),
        ("kinds", _counts(group.kinds)), ("queues", _counts(group.queues)),
        ("workers", _counts(group.workers)), ("versions", _counts(group.versions)),
    )  # fmt: skip
    terminal.console().print(terminal.facts(pairs))
    for sample in found.samples:
        line = f"{sample.id}  {sample.kind}  {sample.status}  {terminal.ago(sample.at, now)}"
        terminal.console().print(line)
    traceback = next((one.traceback for one in found.samples if one.traceback), None)
    if traceback is not None:
        terminal.console().print()
        lines = traceback.splitlines()[-_MAX_TRACEBACK_LINES:]
        terminal.console().print("\n".join(lines), soft_wrap=True)


def _print_changed(view: ErrorGroupView, word: str, as_json: bool) -> None:
    if as_json:
        terminal.write_json(to_json(view))
    else:
        terminal.console().print(f"{view.id} is {word}: {terminal.one_line(view.title, 60)}")


def _counts(values: Sequence[ValueCount]) -> str | None:
    return ", ".join(f"{one.value} {one.count:,}" for one in values) or None


def _span_s(text: str) -> float:
    span_s = seconds(as_span(text), field="--since")
    ops.check_span(span_s)
    return span_s


def _states(words: Sequence[str]) -> tuple[GroupState, ...]:
    for word in words:
        if word not in tuple(GroupState):
            raise BadOption(f"--state {word!r} is no state: use {', '.join(GroupState)}")
    return tuple(GroupState(word) for word in words)


def _order(word: str) -> GroupOrder:
    if word not in tuple(GroupOrder):
        raise BadOption(f"--sort {word!r} is no order: use {', '.join(GroupOrder)}")
    return GroupOrder(word)
