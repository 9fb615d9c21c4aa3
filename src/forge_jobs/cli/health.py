"""``forge stats`` and ``forge doctor``."""

import sys
from datetime import timedelta
from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from forge_jobs.core.status import JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.ops import metrics, queries
from forge_jobs.ops.actions import Store
from forge_jobs.ops.doctor import Finding, Severity, examine, worst_first
from forge_jobs.ops.metrics import KindView
from forge_jobs.ops.prometheus import prometheus_text
from forge_jobs.ops.views import MinuteView, Overview, to_json

from . import show
from .exit_codes import FAILED, OK
from .options import AsJson, Url
from .queues import queue_table
from .session import on_store, with_forge

_WATCH_S = 2.0
_MARK = {
    Severity.OK: ("ok", "green"),
    Severity.WARNING: ("warn", "yellow"),
    Severity.ERROR: ("error", "bold red"),
}


def stats(
    minutes: Annotated[
        int, typer.Option("--minutes", min=1, max=1440, metavar="N", help="How far to look back.")
    ] = 10,
    as_prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print everything as Prometheus text.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every two seconds, until Ctrl-C.")
    ] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show counts, lag, workers and what the last minutes brought, with percentiles by kind.

    \b
    Example:
      forge stats --minutes 30
      forge stats --watch
      forge stats --prometheus
    """
    if as_prometheus:
        sys.stdout.write(on_store(url, prometheus_text))
        return
    seen, kinds = on_store(url, lambda store: _seen(store, minutes))
    if as_json:
        told = msgspec.json.decode(seen.to_json())
        show.write_json(to_json({**told, "kinds": kinds}))
        return
    _print_stats(seen, kinds)
    while watch:
        SYSTEM_CLOCK.pause(_WATCH_S)
        seen, kinds = on_store(url, lambda store: _seen(store, minutes))
        show.console().clear()
        _print_stats(seen, kinds)


def _print_stats(seen: Overview, kinds: tuple[KindView, ...]) -> None:
    out = show.console()
    out.print(_headline(seen))
    if seen.queues:
        out.print()
        out.print(queue_table(seen.queues))
    if kinds:
        out.print()
        out.print(_kinds(kinds))
    out.print()
    out.print(_minutes(seen.minutes))


async def _seen(store: Store, minutes: int) -> tuple[Overview, tuple[KindView, ...]]:
    seen = await queries.overview(store, minutes=minutes)
    until = seen.minutes[-1].at + timedelta(minutes=1)
    return seen, await metrics.by_kind(store, since=seen.minutes[0].at, until=until)


def doctor(url: Url = None, as_json: AsJson = False) -> None:
    """Check the store, the queues and the workers; exit 1 when something is broken.

    \b
    Example:
      forge doctor
    """
    findings = with_forge(url, lambda forge: examine(forge.store))
    findings = worst_first([*findings, *_pages()])
    if as_json:
        show.write_json(to_json({"findings": findings}))
    else:
        _print_findings(findings)
    broken = any(finding.severity is Severity.ERROR for finding in findings)
    raise typer.Exit(FAILED if broken else OK)


def _pages() -> list[Finding]:
    """About the files of Mission Control, where the extra [web] is installed."""
    try:
        from forge_jobs.web import page_files
    except ModuleNotFoundError:
        return []
    return page_files.findings()


def _headline(seen: Overview) -> Text:
    line = Text()
    for status in JobStatus:
        if seen.counts[status]:
            line.append_text(Text.assemble(f"{seen.counts[status]:,} ", show.status(status), "  "))
    if not line:
        line.append("No jobs.  ")
    slots = sum(sum(worker.slots.values()) for worker in seen.workers)
    busy = sum(worker.running for worker in seen.workers)
    line.append(f"\n{show.plural(len(seen.workers), 'worker')}, {busy} of {slots} slots busy")
    line.append(f", oldest due job waits {show.span(seen.lag_s)}" if seen.lag_s else "")
    return line


def _kinds(kinds: tuple[KindView, ...]) -> Table:
    heads = ("DONE", "DEAD", "WAIT P50", "P95", "RUN P50", "P95", "P99", "MAX")
    made = show.table("KIND", "QUEUE", *heads, right=heads, shrink=("KIND", "QUEUE"))
    for view in kinds:
        whole = view.whole
        made.add_row(
            view.kind,
            view.queue,
            show.number(whole.done),
            show.alarm(whole.dead),
            *(show.span(span_s) for span_s in (whole.waited.p50_s, whole.waited.p95_s)),
            *(show.span(span_s) for span_s in (whole.ran.p50_s, whole.ran.p95_s)),
            *(show.span(span_s) for span_s in (whole.ran.p99_s, whole.ran.max_s)),
        )
    return made


def _minutes(minutes: tuple[MinuteView, ...]) -> Table:
    heads = ("ENQUEUED", "DONE", "RETRIED", "DEAD", "CANCELLED", "RUN P95", "WAIT P95")
    made = show.table("MINUTE (UTC)", *heads, right=heads)
    busy = [minute for minute in minutes if _something(minute)] or list(minutes[-1:])
    for minute in busy:
        made.add_row(
            f"{minute.at:%m-%d %H:%M}",
            show.number(minute.enqueued),
            show.number(minute.done),
            show.number(minute.retried),
            show.alarm(minute.dead),
            show.number(minute.cancelled),
            show.span(minute.run_p95_s),
            show.span(minute.wait_p95_s),
        )
    return made


def _something(minute: MinuteView) -> int:
    return minute.enqueued + minute.done + minute.retried + minute.dead + minute.cancelled


def _print_findings(findings: list[Finding]) -> None:
    out = show.console()
    made = show.table("", "SUBJECT", "FINDING", fold=("FINDING", "SUBJECT"))
    for finding in findings:
        word, style = _MARK[finding.severity]
        text = Text(finding.message)
        if finding.cure and finding.severity is not Severity.OK:
            text.append(f"\n→ {finding.cure}", style="bright_black")
        made.add_row(Text(word, style=style), finding.subject, text)
    out.print(made)
    counts = {severity: sum(f.severity is severity for f in findings) for severity in Severity}
    out.print(
        f"\n{show.plural(counts[Severity.ERROR], 'error')}, "
        f"{show.plural(counts[Severity.WARNING], 'warning')}, {counts[Severity.OK]} fine."
    )
