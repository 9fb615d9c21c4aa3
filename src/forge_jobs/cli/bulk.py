"""``forge jobs retry|cancel|delete|run-now|duplicate``: on ids, or on a filter after a preview."""

import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, assert_never

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from forge_jobs.core import job_query
from forge_jobs.core.counters import CappedCount
from forge_jobs.core.errors import BadOption
from forge_jobs.core.job_query import JobQuery
from forge_jobs.core.selection import Acted, Filter, Selection
from forge_jobs.ops import queries
from forge_jobs.ops.actions import (
    APPLIES_TO,
    BATCH_SIZE,
    Action,
    DuplicateResult,
    JobActions,
    OnProgress,
    Store,
)

from . import terminal
from .exit_codes import FAILED, OK, Stop
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
    Yes,
    filter_of,
)
from .session import actor, with_query, with_store
from .steps import FromStep, retry_from

_LABELS = {
    Action.RETRY: ("Retry", "back in line"),
    Action.CANCEL: ("Cancel", "cancelled"),
    Action.DELETE: ("Delete", "deleted"),
    Action.RUN_NOW: ("Run now", "made due"),
    Action.DUPLICATE: ("Duplicate", "enqueued again"),
}
_HELP = {
    Action.RETRY: "Make failed, dead or cancelled jobs pending again, with all their attempts.",
    Action.CANCEL: "Cancel waiting jobs, and request running ones to stop.",
    Action.DELETE: "Delete jobs that do not run; a running one is requested to stop.",
    Action.RUN_NOW: "Start scheduled jobs and waiting retries now.",
    Action.DUPLICATE: "Enqueue jobs again, as new jobs without their dedupe key.",
}
_EXAMPLE = {
    Action.RETRY: (
        "forge jobs retry --queue mail --status dead --yes\n"
        "  forge jobs retry 01JABCDEFGHJKMNPQRSTVWXYZ0 --from charge"
    ),
    Action.CANCEL: "forge jobs cancel --kind send --status scheduled",
    Action.DELETE: "forge jobs delete --status done --older-than 7d",
    Action.RUN_NOW: "forge jobs run-now --queue mail --status failed",
    Action.DUPLICATE: "forge jobs duplicate 01JABCDEFGHJKMNPQRSTVWXYZ0",
}


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """One bulk action that a command was asked for."""

    action: Action
    selection: Selection
    yes: bool
    dry_run: bool
    as_json: bool
    query: JobQuery | None = None


def add_to(app: typer.Typer) -> None:
    """Add one command per action."""
    for action in Action:
        app.command(action.value, help=f"{_HELP[action]}\n\n\b\nExample:\n  {_EXAMPLE[action]}")(
            _command(action)
        )


def _command(action: Action) -> Callable[..., None]:
    def command(
        ids: Annotated[
            list[str] | None, typer.Argument(metavar="ID...", help="Job ids.", show_default=False)
        ] = None,
        queue: Queue = None,
        kind: Kind = None,
        status: Statuses = None,
        tag: Tag = None,
        error: ErrorText = None,
        older_than: OlderThan = None,
        newer_than: NewerThan = None,
        query: QueryLine = None,
        everything: Annotated[
            bool, typer.Option("--all", help="Every job the action applies to.")
        ] = False,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Print how many jobs; change nothing.")
        ] = False,
        from_step: FromStep = None,
        yes: Yes = False,
        url: Url = None,
        as_json: AsJson = False,
    ) -> None:
        chosen = filter_of(
            queue=queue,
            kind=kind,
            statuses=status,
            tag=tag,
            error=error,
            older_than=older_than,
            newer_than=newer_than,
        )
        line = None if query is None else job_query.parse(query)
        selection = _selection(action, tuple(ids or ()), chosen, everything or line is not None)
        if from_step is not None:
            job_id = _only_id(selection, dry_run)
            raise typer.Exit(
                with_store(url, lambda store: retry_from(store, job_id, from_step, as_json=as_json))
            )
        request = BulkRequest(action, selection, yes, dry_run, as_json, line)
        raise typer.Exit(with_store(url, lambda store: run_bulk(store, request)))

    if action is not Action.RETRY:
        _remove_parameter(command, "from_step")
    return command


def _remove_parameter(command: Any, name: str) -> None:
    """Typer reads the options of a command from its signature."""
    given = inspect.signature(command)
    left = [one for one in given.parameters.values() if one.name != name]
    command.__signature__ = given.replace(parameters=left)


def _only_id(selection: Selection, dry_run: bool) -> str:
    if len(selection.ids) != 1 or dry_run:
        raise BadOption("--from takes one job id, no filter and no --dry-run")
    return selection.ids[0]


def _selection(action: Action, ids: tuple[str, ...], chosen: Filter, everything: bool) -> Selection:
    filtered = chosen != Filter() or everything
    if ids and filtered:
        raise BadOption("give job ids or filters, not both")
    if ids:
        return Selection(ids=ids)
    if not filtered:
        raise BadOption(f"name the jobs to {action}: ids, a filter such as --queue mail, or --all")
    return Selection(filter=chosen)


async def run_bulk(store: Store, request: BulkRequest) -> int:
    """Preview, ask, act; the exit code."""
    operator = JobActions(store, actor=actor())
    size = CappedCount(len(request.selection.ids))
    if request.selection.filter is not None:
        chosen = await with_query(store, request.selection.filter, request.query)
        request = replace(request, selection=Selection(filter=chosen))
        size = await operator.preview(request.action, chosen)
        if request.dry_run or size.jobs == 0:
            return _print_size(request, size)
        _confirm(request, size)
    elif request.dry_run:
        return _print_size(request, size)
    with _ProgressBar(request, size) as progress:
        copied = await _apply(operator, request, progress)
    if request.as_json:
        _print_json(request, copied)
    else:
        _print(request, copied)
        await _explain(store, request, copied.acted)
    by_id_failed = request.selection.ids and copied.acted.skipped + copied.acted.missing
    return FAILED if by_id_failed else OK


async def _apply(
    operator: JobActions, request: BulkRequest, progress: OnProgress
) -> DuplicateResult:
    selection = request.selection
    match request.action:
        case Action.RETRY:
            return DuplicateResult(await operator.retry(selection, progress=progress))
        case Action.CANCEL:
            return DuplicateResult(await operator.cancel(selection, progress=progress))
        case Action.DELETE:
            return DuplicateResult(await operator.delete(selection, progress=progress))
        case Action.RUN_NOW:
            return DuplicateResult(await operator.run_now(selection, progress=progress))
        case Action.DUPLICATE:
            return await operator.duplicate(selection, progress=progress)
        case _:
            assert_never(request.action)


def _confirm(request: BulkRequest, size: CappedCount) -> None:
    if request.yes:
        return
    question = f"{_LABELS[request.action][0]} {_count_text(size)}?"
    if request.as_json or not sys.stdin.isatty():
        raise Stop(f"{question} Nothing was done: repeat with --yes", code="not_confirmed")
    terminal.messages().print(f"{question} [y/N] ", end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise typer.Abort


def _print_size(request: BulkRequest, size: CappedCount) -> int:
    if request.as_json:
        document = {
            "action": request.action,
            "matching": size.jobs,
            "more": size.more,
            "changed": 0,
        }
        terminal.write_json(json.dumps(document).encode())
    elif size.jobs == 0:
        terminal.console().print("No jobs match.")
    else:
        verb = "matches" if size.jobs == 1 else "match"
        terminal.console().print(f"{_LABELS[request.action][0]}: {_count_text(size)} {verb}.")
    return OK


def _print_json(request: BulkRequest, copied: DuplicateResult) -> None:
    acted = copied.acted
    document: dict[str, object] = {
        "action": request.action,
        "changed": acted.changed,
        "requested": acted.requested,
        "skipped": acted.skipped,
        "missing": acted.missing,
    }
    if request.action is Action.DUPLICATE:
        document["ids"] = list(copied.ids)
    terminal.write_json(json.dumps(document).encode())


def _print(request: BulkRequest, copied: DuplicateResult) -> None:
    acted = copied.acted
    parts = [f"{terminal.plural(acted.changed, 'job')} {_LABELS[request.action][1]}"]
    if acted.requested:
        parts.append(f"{acted.requested:,} running asked to stop")
    if acted.skipped:
        parts.append(f"{acted.skipped:,} skipped")
    if acted.missing:
        parts.append(f"{acted.missing:,} not found")
    terminal.console().print(", ".join(parts) + ".")
    for job_id in copied.ids:
        terminal.console().print(job_id)


async def _explain(store: Store, request: BulkRequest, acted: Acted) -> None:
    """Print why nothing happened, for a single job named by id."""
    if len(request.selection.ids) != 1 or not acted.skipped:
        return
    record = await queries.get_record(store, request.selection.ids[0])
    allowed = APPLIES_TO[request.action]
    if record.status in allowed:
        text = "another live job holds its dedupe key"
    else:
        text = f"it is {record.status}; {request.action} applies to {', '.join(allowed)}"
    terminal.messages().print(f"forge: {text}", soft_wrap=True)


class _ProgressBar:
    """A progress bar on stderr for long actions in a terminal; otherwise nothing."""

    def __init__(self, request: BulkRequest, size: CappedCount) -> None:
        screen = terminal.messages()
        wanted = size.jobs > BATCH_SIZE and screen.is_terminal and not request.as_json
        self._bar = (
            Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=screen
            )
            if wanted
            else None
        )
        self._label = _LABELS[request.action][0]
        # Past the cap the total is unknown, and the bar pulses.
        self._total = None if size.more else size.jobs

    def __enter__(self) -> OnProgress:
        bar = self._bar
        if bar is None:
            return lambda acted: None
        bar.start()
        task = bar.add_task(self._label, total=self._total)

        def advance(acted: Acted) -> None:
            seen = acted.changed + acted.requested + acted.skipped + acted.missing
            bar.update(task, completed=seen)

        return advance

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _count_text(size: CappedCount) -> str:
    return f"{size.jobs:,}+ jobs" if size.more else terminal.plural(size.jobs, "job")
