"""Lists of jobs: all, and the three an operator asks for most. Filters live in the address."""

import asyncio
from typing import Final

from msgspec.structs import replace

from forge_jobs.core.counters import CappedCount
from forge_jobs.core.errors import BadOption
from forge_jobs.core.selection import Acted, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.ops import queries
from forge_jobs.ops.actions import APPLIES, Action
from forge_jobs.ops.operations import Operation, OperationState
from forge_jobs.ops.views import JobsPage
from forge_jobs.web.access.identity import Role
from forge_jobs.web.local import local_path
from forge_jobs.web.request_context import RequestContext

from .filters import filter_of, kept
from .page import Form, Given, Notice, Page, Shown
from .quoting import forge
from .quoting import jobs as bulk_command

PAGE_ROWS: Final = 50
TYPED_ABOVE: Final = 500
# Which moment of a job a list of one state is about, and what its column says.
_MOMENTS: Final = {
    JobStatus.SCHEDULED: ("Due", "run_at"),
    JobStatus.FAILED: ("Next try", "run_at"),
    JobStatus.RUNNING: ("Started", "started_at"),
    JobStatus.DONE: ("Ended", "finished_at"),
    JobStatus.DEAD: ("Died", "finished_at"),
    JobStatus.CANCELLED: ("Cancelled", "finished_at"),
}
_NOTHING: Final = {
    JobStatus.SCHEDULED: "Nothing waits for its time.",
    JobStatus.FAILED: "Nothing waits for another try.",
    JobStatus.DEAD: "No job has died. Jobs that fail for good stay here until somebody acts.",
}
_TURN_S: Final = 0.05
_TURNS: Final = 30
_DONE: Final = {
    Action.RETRY: "back in line",
    Action.CANCEL: "cancelled",
    Action.DELETE: "deleted",
    Action.RUN_NOW: "made due",
    Action.DUPLICATE: "enqueued again",
}


async def view(desk: RequestContext, given: Given) -> Shown:
    return await _list(desk, given, ())


async def scheduled(desk: RequestContext, given: Given) -> Shown:
    return await _list(desk, given, (JobStatus.SCHEDULED,))


async def retries(desk: RequestContext, given: Given) -> Shown:
    return await _list(desk, given, (JobStatus.FAILED,))


async def dead(desk: RequestContext, given: Given) -> Shown:
    return await _list(desk, given, (JobStatus.DEAD,))


async def _list(desk: RequestContext, given: Given, fixed: tuple[JobStatus, ...]) -> Shown:
    wanted = filter_of(given, fixed)
    after = given.get("after") or None
    text = given.get("payload", "").strip()
    (page, total), queues = await asyncio.gather(
        _found(desk, replace(wanted, payload=text), after)
        if text
        else queries.listed(desk.store, wanted, limit=PAGE_ROWS, after=after),
        queries.queues(desk.store, clock=desk.clock),
    )
    only = wanted.statuses[0] if len(wanted.statuses) == 1 else JobStatus.PENDING
    told, moment_of = _MOMENTS.get(only, ("Enqueued", "enqueued_at"))
    counts = {status: sum(queue.counts[status] for queue in queues) for status in JobStatus}
    return {
        "jobs": page.jobs,
        "next": page.next,
        "first": after is None,
        "total": total,
        "filter": {**kept(given), "payload": text},
        "seen": page.looked,
        "looked": page.looked if text or page.stopped else None,
        "operations": [one for one in desk.operations.all() if one.ended_at is None],
        "fixed": fixed,
        "told": told,
        "moment_of": moment_of,
        "nothing": _NOTHING.get(only, "No job yet. Enqueue one: forge enqueue KIND '{}'"),
        "chosen": wanted.statuses,
        "counts": counts,
        "queues": [queue.name for queue in queues],
        # a search has no count: its finds are ticked, never acted on unseen
        "everything": not text,
        "actions": actions_for(wanted.statuses),
    }


async def _found(
    desk: RequestContext, wanted: Filter, after: str | None
) -> tuple[JobsPage, CappedCount]:
    """What a search in payloads came upon; it is counted what it would look through."""
    return await asyncio.gather(
        queries.jobs(desk.store, wanted, limit=PAGE_ROWS, after=after),
        queries.count(desk.store, replace(wanted, payload=None)),
    )


def actions_for(statuses: tuple[JobStatus, ...]) -> list[str]:
    """What can be done to every job of these states."""
    listed = (Action.RETRY, Action.RUN_NOW, Action.CANCEL, Action.DELETE)
    shown = statuses or tuple(JobStatus)
    return [action.value for action in listed if any(s in APPLIES[action] for s in shown)]


async def act(desk: RequestContext, given: Given) -> Notice:
    """One action on chosen jobs, or on all that match the filter of the page."""
    action = _action(given)
    if action is Action.DELETE and not desk.may(Role.ADMIN):
        raise BadOption("deleting needs the role admin")
    ids = tuple(filter(None, given.get("ids", "").split(",")))
    if ids:
        selection = Selection(ids=ids)
    elif given.get("all") == "yes":
        _no_search(given)
        wanted = filter_of(given)
        await _typed(desk, action, wanted, given)
        selection = Selection(filter=wanted)
    else:
        raise BadOption("choose at least one job")
    if ids:
        acted = await desk.operator.perform(action, selection)
        return Notice(spelled(action, acted), command(action, ids, given))
    return await _in_background(desk, action, selection, command(action, ids, given))


async def _in_background(
    desk: RequestContext, action: Action, selection: Selection, same: str
) -> Notice:
    """Many jobs take as long as they take: the page is free after a second, the work goes on."""
    begun = await desk.operations.start(desk.operator, action, selection, actor=desk.actor)
    for _ in range(_TURNS):
        now = desk.operations.get(begun.id)
        match now.state:
            case OperationState.RUNNING:
                await desk.clock.sleep(_TURN_S)
            case OperationState.FAILED:
                return Notice(now.error or "it failed", same, bad=True)
            case OperationState.DONE | OperationState.STOPPED:
                return Notice(_told(now), same)
    return Notice(f"{_told(desk.operations.get(begun.id))} so far; the rest follows", same)


async def stop(desk: RequestContext, given: Given) -> Notice:
    """Ask a bulk operation to stop; what is done stays done."""
    return Notice(f"{_told(desk.operations.stop(given['id']))}; it stops after this step")


def _told(now: Operation) -> str:
    acted = Acted(
        changed=now.changed, requested=now.requested, skipped=now.skipped, missing=now.missing
    )
    return spelled(now.action, acted)


async def preview(desk: RequestContext, given: Given) -> Shown:
    """What an action on all that match would reach, before anybody agrees to it."""
    action = _action(given)
    _no_search(given)
    wanted = filter_of(given)
    reach = [status for status in wanted.statuses or APPLIES[action] if status in APPLIES[action]]
    if not reach:
        raise BadOption(f"{action} does not apply to {', '.join(wanted.statuses)} jobs")
    asked = replace(wanted, statuses=tuple(reach))
    return {
        "action": action.value,
        "verb": action.value.replace("-", " ").capitalize(),
        "count": await desk.operator.preview(action, asked),
        "reach": reach,
        "typed_above": TYPED_ABOVE,
        "filter": {**kept(given), "status": ",".join(reach)},
        "command": bulk_command(action, {**kept(given), "status": ",".join(reach)}),
        "back": local_path(given.get("back", "/jobs"), "/jobs"),
    }


async def _typed(desk: RequestContext, action: Action, wanted: Filter, given: Given) -> None:
    """Above a size a click is too little: the word of the action must be typed."""
    reach = await desk.operator.preview(action, wanted, cap=TYPED_ABOVE + 1)
    if reach.jobs > TYPED_ABOVE and given.get("typed", "").strip().lower() != action:
        raise BadOption(f"more than {TYPED_ABOVE} jobs: type {action} to do it")


def _no_search(given: Given) -> None:
    # a search looks at a part only: "all of it" would reach jobs that nobody has seen
    if given.get("payload"):
        raise BadOption("a search in payloads has no whole: tick the jobs you mean")


def _action(given: Given) -> Action:
    try:
        return Action(given["action"])
    except ValueError:
        raise BadOption(f"action={given['action']!r} is not one of {', '.join(Action)}") from None


def spelled(action: Action, acted: Acted) -> str:
    """What was done, as a sentence."""
    parts = [f"{acted.changed:,} {_DONE[action]}"]
    if acted.requested:
        parts.append(f"{acted.requested:,} running asked to stop")
    if acted.skipped:
        parts.append(f"{acted.skipped:,} skipped")
    if acted.missing:
        parts.append(f"{acted.missing:,} no longer there")
    return ", ".join(parts)


def command(action: Action, ids: tuple[str, ...], given: Given) -> str:
    """The command that does the same."""
    if ids:
        return forge("jobs", action, *ids[:3]) + (" …" if len(ids) > 3 else "")
    return bulk_command(action, given)


PAGES: Final = (
    Page(path="/jobs", name="jobs", title="Jobs", template="jobs.html", view=view, key="j"),
    Page(
        path="/scheduled", name="scheduled", title="Scheduled", template="jobs.html",
        view=scheduled, key="s",
    ),
    Page(
        path="/retries", name="retries", title="Retries", template="jobs.html",
        view=retries, key="r",
    ),
    Page(path="/dead", name="dead", title="Dead", template="jobs.html", view=dead, key="d"),
    Page(
        path="/bulk/{action}", name="bulk", title="Preview", template="bulk.html", view=preview,
        role=Role.OPERATOR, nav=False, live=False, under="jobs",
    ),
)  # fmt: skip

FORMS: Final = (
    Form(path="/act/jobs/{action}", role=Role.OPERATOR, act=act),
    Form(path="/act/operations/{id}/stop", role=Role.OPERATOR, act=stop),
)
