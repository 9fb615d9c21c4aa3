"""``forge cron show``: how a schedule does."""

from collections import Counter
from typing import Annotated

import typer

from forge_jobs.ops.schedule_runs import ScheduleRuns, schedule_runs

from . import terminal
from .options import AsJson, Url
from .session import with_store

_ROWS = 10


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show what a schedule says in words, its last runs with their results, its next five times,
    and why it does not run.

    \b
    Example:
      forge cron show nightly
    """
    found = with_store(url, lambda store: schedule_runs(store, name))
    if as_json:
        terminal.write_json(found.to_json())
    else:
        _print(found)


def _print(found: ScheduleRuns) -> None:
    out, schedule = terminal.console(), found.schedule
    out.print(
        terminal.facts(
            [
                ("name", schedule.name),
                ("when", f"{schedule.expression}  {schedule.tz}"),
                ("in words", found.words),
                ("kind", schedule.kind),
                ("next", ", ".join(f"{at:%Y-%m-%d %H:%M:%S}" for at in found.next) or "never"),
                ("runs", _counts(found)),
            ]
        )
    )
    if found.why_not:
        out.print("\nWhy it did not run")
        for reason in found.why_not:
            remedy = f" -> {reason.remedy}" if reason.remedy else ""
            out.print(f"{reason.text}{remedy}", soft_wrap=True)
    if found.runs:
        rows = terminal.table("TICK (UTC)", "RESULT", "RAN", "MISSED", "JOB", right=("RAN",))
        for run in reversed(found.runs[-_ROWS:]):
            rows.add_row(
                f"{run.tick:%Y-%m-%d %H:%M:%S}",
                run.state,
                "-" if run.ran_s is None else terminal.span(run.ran_s),
                str(run.missed or "-"),
                run.job_id or "-",
            )
        out.print()
        out.print(rows)


def _counts(found: ScheduleRuns) -> str:
    counts = Counter(run.state for run in found.runs)
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "none yet"
