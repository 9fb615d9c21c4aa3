"""``forge jobs steps`` and ``forge jobs retry ID --from STEP``: the stored steps of a job."""

from datetime import datetime
from typing import Annotated, Final

import msgspec
import typer
from msgspec import UNSET
from rich.text import Text

from forge_jobs.ops import steps
from forge_jobs.ops.actions import Store
from forge_jobs.ops.event_actions import EventActions
from forge_jobs.ops.step_views import StepState, StepView
from forge_jobs.ops.steps import StepsPage
from forge_jobs.ops.views import to_json

from . import terminal
from .exit_codes import OK
from .options import AsJson, Url
from .session import actor, with_store

FromStep = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="STEP", help="Only with one ID: run this step and later ones again."
    ),
]
_STYLES: Final = {
    StepState.STORED: "green",
    StepState.ERROR: "red",
    StepState.TIMEOUT: "dark_orange",
    StepState.OPEN: "bright_blue",
}
_VALUE_LENGTH: Final = 2_000


def list_steps(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    values: Annotated[
        bool, typer.Option("--values", help="Also print values; secrets are masked.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="Steps per page.")] = 100,
    offset: Annotated[
        int, typer.Option("--offset", metavar="N", min=0, help="Steps to leave out.")
    ] = 0,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the stored steps of a job, in the order in which they began.

    \b
    Example:
      forge jobs steps 01JABCDEFGHJKMNPQRSTVWXYZ0 --values
    """

    async def work(store: Store) -> StepsPage:
        return await steps.job_steps(store, job_id, offset=offset, limit=limit, values=values)

    page = with_store(url, work)
    if as_json:
        terminal.write_json(page.to_json())
    else:
        _print_page(page)


async def retry_from(store: Store, job_id: str, step: str, *, as_json: bool) -> int:
    """Retry one job from a step, and print what becomes of its steps."""
    done = await EventActions(store, actor=actor()).retry_from(job_id, step)
    if as_json:
        terminal.write_json(to_json(done))
    else:
        again = (
            f"{terminal.plural(done.deleted, 'step')} run{'s' if done.deleted == 1 else ''} again"
        )
        text = f"1 job back in line from {done.step!r}: {again}, {done.kept:,} kept."
        terminal.console().print(text, soft_wrap=True)
    return OK


def _print_page(page: StepsPage) -> None:
    out = terminal.console()
    if not page.steps:
        out.print("No steps here." if page.total else "This job has no stored step.")
        return
    first = page.began_at or page.at
    rows = terminal.table(
        "STEP", "KIND", "STATE", "AT", "TOOK", "RUN", "SIZE",
        right=("AT", "TOOK", "RUN", "SIZE"), shrink=("STEP",),
    )  # fmt: skip
    for step in page.steps:
        rows.add_row(
            terminal.cut(step.name),
            step.kind.value,
            _state(step),
            _after((step.began_at - first).total_seconds()),
            _took(step, page.at),
            str(step.run) if step.run else "-",
            f"{step.size:,}" if step.size else "-",
        )
    out.print(rows)
    if page.unused:
        named = f"{terminal.plural(page.unused, 'step')} unused"
        called = "it" if page.unused == 1 else "them"
        out.print(f"\n{named}: the run that ended the job did not call {called}.", soft_wrap=True)
    for step in page.steps:
        if step.value is not UNSET:
            out.print(Text(f"\n{step.name}", style="bold"))
            text = msgspec.json.format(to_json(step.value), indent=2).decode()
            cut = (
                text if len(text) <= _VALUE_LENGTH else text[:_VALUE_LENGTH] + "… (--json has all)"
            )
            out.print(cut, soft_wrap=True)
    if page.next is not None:
        out.print(f"\n{page.total:,} steps. More: repeat with --offset {page.next}", soft_wrap=True)


def _state(step: StepView) -> Text:
    if step.unused:
        return Text("unused", style="bright_black")
    return Text(step.state.value, style=_STYLES[step.state])


def _after(seconds: float) -> str:
    return f"+{terminal.span(seconds)}" if seconds > 0 else "0"


def _took(step: StepView, now: datetime) -> str:
    if step.duration_s is not None:
        return terminal.span(step.duration_s)
    return terminal.span((now - step.began_at).total_seconds())
