"""The lists of jobs (/jobs, /scheduled, /retries, /dead), bulk actions on them, and their preview.

The filter is in the URL. The columns of the table are in ``templates/jobs.html``.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from forge_jobs.core.counters import CappedCount
from forge_jobs.core.errors import BadOption
from forge_jobs.core.ids import decode, is_short
from forge_jobs.core.job import JobRecord
from forge_jobs.core.job_query import NAMES, JobQuery
from forge_jobs.core.selection import (
    Acted,
    Filter,
    Order,
    Selection,
    parse_order,
    usual_order,
)
from forge_jobs.core.status import JobStatus
from forge_jobs.ops import queries
from forge_jobs.ops.actions import APPLIES_TO, Action
from forge_jobs.ops.operations import Operation, OperationState
from forge_jobs.ops.saved_views import saved_views
from forge_jobs.ops.views import QueueView, job_summary
from forge_jobs.web.access.identity import Role
from forge_jobs.web.curl import bulk_curl
from forge_jobs.web.local_path import local_path
from forge_jobs.web.request_context import RequestContext

from .commands import bulk_command, forge_command
from .filters import form_fields, job_filter, parse_query, query_parameters
from .page import FormSpec, Notice, PageSpec, Params, TemplateVars

PAGE_ROWS: Final = 50
CONFIRM_ABOVE: Final = 500
# The header and the field of the time column, for lists of one state.
_TIME_COLUMNS: Final = {
    JobStatus.SCHEDULED: ("Due", "run_at"),
    JobStatus.FAILED: ("Next try", "run_at"),
    JobStatus.RUNNING: ("Started", "started_at"),
    JobStatus.DONE: ("Ended", "finished_at"),
    JobStatus.DEAD: ("Died", "finished_at"),
    JobStatus.CANCELLED: ("Cancelled", "finished_at"),
}
_EMPTY_TEXTS: Final = {
    JobStatus.SCHEDULED: "Nothing waits for its time.",
    JobStatus.FAILED: "Nothing waits for another try.",
    JobStatus.DEAD: "No job has died. Jobs that fail for good stay here until somebody acts.",
}
_NOTHING_FOUND: Final = {
    "jobs": (), "next": None, "first": True, "total": CappedCount(0), "jobs_read": 0,
    "is_partial": False, "can_select_all": False,
}  # fmt: skip
_POLL_S: Final = 0.05
_MAX_POLLS: Final = 30
_RESULT_WORDS: Final = {
    Action.RETRY: "back in line",
    Action.CANCEL: "cancelled",
    Action.DELETE: "deleted",
    Action.RUN_NOW: "made due",
    Action.DUPLICATE: "enqueued again",
}


async def view(context: RequestContext, params: Params) -> TemplateVars:
    return await _list_view(context, params, ())


async def scheduled(context: RequestContext, params: Params) -> TemplateVars:
    return await _list_view(context, params, (JobStatus.SCHEDULED,))


async def retries(context: RequestContext, params: Params) -> TemplateVars:
    return await _list_view(context, params, (JobStatus.FAILED,))


async def dead(context: RequestContext, params: Params) -> TemplateVars:
    return await _list_view(context, params, (JobStatus.DEAD,))


async def _list_view(
    context: RequestContext, params: Params, fixed: tuple[JobStatus, ...]
) -> TemplateVars:
    queues, kinds, views = await asyncio.gather(
        queries.queues(context.store, clock=context.clock),
        context.store.queues.kinds(),
        saved_views(context.store),
    )
    try:
        query = parse_query(params)
        wanted = await job_filter(context, query, fixed)
        order = parse_order(params["sort"]) if params.get("sort") else usual_order(wanted.statuses)
        listed = await _found(context, query, wanted, order, params.get("after") or None)
    except BadOption as error:
        # the line stays for the reader to mend; a cursor of another store has no line
        query, wanted, order = JobQuery(), Filter(statuses=fixed), Order.NEWEST
        listed = {**_NOTHING_FOUND, "trouble": str(error), "line": params.get("query", "")}
    counts = {status: sum(queue.counts[status] for queue in queues) for status in JobStatus}
    only = wanted.statuses[0] if len(wanted.statuses) == 1 else JobStatus.PENDING
    time_label, time_field = _TIME_COLUMNS.get(only, ("Enqueued", "enqueued_at"))
    usual = usual_order(wanted.statuses)
    return {
        "trouble": "",
        "line": query_parameters(query)["query"],
        "filter": query_parameters(query),
        "sort": "" if order is usual else order.value,
        "sorting": _sorting(order, usual),
        "fields": form_fields(query),
        "views": views,
        "whole_line": str(query),
        "completions": _completions(params, queues, kinds),
        "operations": [
            operation for operation in context.operations.all() if operation.ended_at is None
        ],
        "fixed": fixed,
        "time_label": time_label,
        "time_field": time_field,
        "empty_text": _EMPTY_TEXTS.get(only, "No job yet. Enqueue one: forge enqueue KIND '{}'"),
        "statuses": wanted.statuses,
        "counts": counts,
        "queues": [queue.name for queue in queues],
        "actions": applicable_actions(wanted.statuses),
        **listed,
    }


def _sorting(order: Order, usual: Order) -> dict[str, dict[str, str]]:
    """For the columns Job and time: ``aria-sort``, and the order that a click on it brings."""
    state = "descending" if order.descending else "ascending"
    turned = order.time if order.descending else f"-{order.time}"
    by_enqueue = {"state": state if order is Order.NEWEST else "", "next": Order.NEWEST.value}
    if usual is Order.NEWEST:
        return {"job": {"state": "", "next": ""}, "time": {**by_enqueue, "next": ""}}
    by_time = {"state": "", "next": usual.value}
    if order is not Order.NEWEST:
        by_time = {"state": state, "next": turned}
    return {"job": by_enqueue, "time": by_time}


async def _found(
    context: RequestContext, query: JobQuery, wanted: Filter, order: Order, after: str | None
) -> TemplateVars:
    """A page of jobs, and the number of all matches; of those to be read, if each must be read. An
    id alone finds its job, whatever the state."""
    if (record := await _named_job(context, query)) is not None:
        return {**_NOTHING_FOUND, "jobs": (job_summary(record),), "total": CappedCount(1)}
    if query.looks_into_jobs:
        unread = replace(wanted, payload=None, arguments=())
        page, total = await asyncio.gather(
            queries.jobs(context.store, wanted, limit=PAGE_ROWS, after=after, order=order),
            queries.count(context.store, unread),
        )
    else:
        page, total = await queries.jobs_and_count(
            context.store, wanted, limit=PAGE_ROWS, after=after, order=order
        )
    return {
        "jobs": page.jobs,
        "next": page.next,
        "first": after is None,
        "total": total,
        "jobs_read": page.looked,
        "is_partial": query.looks_into_jobs or page.stopped,
        # a search does not know all its matches: act on ticked jobs only
        "can_select_all": not query.looks_into_jobs,
    }


async def _named_job(context: RequestContext, query: JobQuery) -> JobRecord | None:
    """The job of a query that is nothing but an id, or the end of one."""
    word = query.fields.get("payload", "")
    if query.arguments or len(query.fields) > 1 or not (is_short(word) or decode(word)):
        return None
    return await context.store.jobs.get(word)


def _completions(
    params: Params, queues: Sequence[QueueView], kinds: Mapping[str, str]
) -> dict[str, list[str]]:
    """What the query line can be completed with, by name."""
    return {
        "kind": sorted(kinds),
        "queue": [queue.name for queue in queues],
        "status": [status.value for status in JobStatus],
        "since": ["15m", "1h", "6h", "1d", "7d"],
        **{name: [] for name in NAMES if name not in ("kind", "queue", "status", "since")},
    }


def applicable_actions(statuses: tuple[JobStatus, ...]) -> list[str]:
    """Bulk actions that apply to at least one of these states; empty means all states."""
    bulk_actions = (Action.RETRY, Action.RUN_NOW, Action.CANCEL, Action.DELETE)
    states = statuses or tuple(JobStatus)
    return [action.value for action in bulk_actions if any(s in APPLIES_TO[action] for s in states)]


async def act(context: RequestContext, params: Params) -> Notice:
    """Run an action on the ticked jobs, or on all that match the filter of the page."""
    action = _parse_action(params)
    if action is Action.DELETE and not context.may(Role.ADMIN):
        raise BadOption("deleting needs the role admin")
    ids = tuple(filter(None, params.get("ids", "").split(",")))
    if ids:
        selection = Selection(ids=ids)
    elif params.get("all") == "yes":
        wanted = await job_filter(context, _whole_query(params))
        await _require_confirmation(context, action, wanted, params)
        selection = Selection(filter=wanted)
    else:
        raise BadOption("choose at least one job")
    if ids:
        acted = await context.job_actions.perform(action, selection)
        return Notice(result_text(action, acted), same_command(action, ids, params))
    return await _start_operation(context, action, selection, same_command(action, ids, params))


async def _start_operation(
    context: RequestContext, action: Action, selection: Selection, command: str
) -> Notice:
    """Start a bulk operation and wait for it at most 1.5 s; then it continues in the background."""
    operation = await context.operations.start(
        context.job_actions, action, selection, actor=context.actor
    )
    for _ in range(_MAX_POLLS):
        operation = context.operations.get(operation.id)
        match operation.state:
            case OperationState.RUNNING:
                await context.clock.sleep(_POLL_S)
            case OperationState.FAILED:
                return Notice(operation.error or "it failed", command, bad=True)
            case OperationState.DONE | OperationState.STOPPED:
                return Notice(_progress_text(operation), command)
    return Notice(
        f"{_progress_text(context.operations.get(operation.id))} so far; the rest follows", command
    )


async def save_view(context: RequestContext, params: Params) -> Notice:
    """Save the query of the page under a name."""
    name = params.get("name", "")
    saved = await context.saved_view_actions.save(name, params.get("query", ""))
    command = forge_command("views", "save", saved.name, saved.query)
    return Notice(f"saved as {saved.name}", command)


async def delete_view(context: RequestContext, params: Params) -> Notice:
    """Delete a saved view."""
    await context.saved_view_actions.delete(params.get("name", ""))
    return Notice(f"deleted {params['name']}", forge_command("views", "delete", params["name"]))


async def stop(context: RequestContext, params: Params) -> Notice:
    """Stop a bulk operation after its current batch."""
    return Notice(
        f"{_progress_text(context.operations.stop(params['id']))}; it stops after this step"
    )


def _progress_text(operation: Operation) -> str:
    acted = Acted(
        changed=operation.changed,
        requested=operation.requested,
        skipped=operation.skipped,
        missing=operation.missing,
    )
    return result_text(operation.action, acted)


async def preview(context: RequestContext, params: Params) -> TemplateVars:
    """Variables of the preview: how many jobs an action on all matches would reach."""
    action = _parse_action(params)
    query = _whole_query(params)
    wanted = await job_filter(context, query)
    reached = [
        status for status in wanted.statuses or APPLIES_TO[action] if status in APPLIES_TO[action]
    ]
    if not reached:
        raise BadOption(f"{action} does not apply to {', '.join(wanted.statuses)} jobs")
    reached_filter = replace(wanted, statuses=tuple(reached))
    reached_query = replace(query, fields={**query.fields, "status": ",".join(reached)})
    return {
        "action": action.value,
        "verb": action.value.replace("-", " ").capitalize(),
        "count": await context.job_actions.preview(action, reached_filter),
        "reached_states": reached,
        "confirm_above": CONFIRM_ABOVE,
        "filter": query_parameters(reached_query),
        "command": bulk_command(action, reached_query),
        "call": bulk_curl(action, reached_filter),
        "back": local_path(params.get("back", "/jobs"), "/jobs"),
    }


async def _require_confirmation(
    context: RequestContext, action: Action, wanted: Filter, params: Params
) -> None:
    """Above 500 jobs the name of the action must be typed."""
    reached = await context.job_actions.preview(action, wanted, cap=CONFIRM_ABOVE + 1)
    if reached.jobs > CONFIRM_ABOVE and params.get("typed", "").strip().lower() != action:
        raise BadOption(f"more than {CONFIRM_ABOVE} jobs: type {action} to do it")


def _whole_query(params: Params) -> JobQuery:
    query = parse_query(params)
    if query.looks_into_jobs:
        # a search reads a part of the jobs: "all" would reach jobs that were never shown
        raise BadOption("a search in payloads has no whole: tick the jobs you mean")
    return query


def _parse_action(params: Params) -> Action:
    try:
        return Action(params["action"])
    except ValueError:
        raise BadOption(f"action={params['action']!r} is not one of {', '.join(Action)}") from None


def result_text(action: Action, acted: Acted) -> str:
    """The totals of an action as a sentence."""
    parts = [f"{acted.changed:,} {_RESULT_WORDS[action]}"]
    if acted.requested:
        parts.append(f"{acted.requested:,} running asked to stop")
    if acted.skipped:
        parts.append(f"{acted.skipped:,} skipped")
    if acted.missing:
        parts.append(f"{acted.missing:,} no longer there")
    return ", ".join(parts)


def same_command(action: Action, ids: tuple[str, ...], params: Params) -> str:
    """The ``forge`` command with the same effect."""
    if ids:
        return forge_command("jobs", action, *ids[:3]) + (" …" if len(ids) > 3 else "")
    return bulk_command(action, parse_query(params))


PAGES: Final = (
    PageSpec(path="/jobs", name="jobs", title="Jobs", template="jobs.html", view=view, key="j"),
    PageSpec(
        path="/scheduled", name="scheduled", title="Scheduled", template="jobs.html",
        view=scheduled, key="s",
    ),
    PageSpec(
        path="/retries", name="retries", title="Failed", template="jobs.html",
        view=retries, key="r",
    ),
    PageSpec(path="/dead", name="dead", title="Dead", template="jobs.html", view=dead, key="d"),
    PageSpec(
        path="/bulk/{action}", name="bulk", title="Preview", template="bulk.html", view=preview,
        role=Role.OPERATOR, nav=False, live=False, nav_parent="jobs",
    ),
)  # fmt: skip

FORMS: Final = (
    FormSpec(path="/act/jobs/{action}", role=Role.OPERATOR, act=act),
    FormSpec(path="/act/operations/{id}/stop", role=Role.OPERATOR, act=stop),
    FormSpec(path="/act/views/save", role=Role.OPERATOR, act=save_view),
    FormSpec(path="/act/views/delete", role=Role.OPERATOR, act=delete_view),
)
