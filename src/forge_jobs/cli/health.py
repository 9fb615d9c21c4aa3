"""``forge stats`` and ``forge doctor``: metrics and diagnosis of a store."""

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

from . import terminal
from .exit_codes import FAILED, OK
from .options import AsJson, Url
from .queues import queue_table
from .session import with_forge, with_store

_WATCH_S = 2.0
_LABELS = {
    Severity.OK: ("ok", "green"),
    Severity.WARNING: ("warn", "yellow"),
    Severity.ERROR: ("error", "bold red"),
}


def stats(
    minutes: Annotated[
        int, typer.Option("--minutes", min=1, max=1440, metavar="N", help="The last N minutes.")
    ] = 10,
    as_prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print everything as Prometheus text.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Refresh every two seconds, until Ctrl-C.")
    ] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show counts, lag, workers and the last minutes, with percentiles by kind.

    \b
    Example:
      forge stats --minutes 30
      forge stats --watch
      forge stats --prometheus
    """
    if as_prometheus:
        sys.stdout.write(with_store(url, prometheus_text))
        return
    overview, kinds = with_store(url, lambda store: _read_stats(store, minutes))
    if as_json:
        document = msgspec.json.decode(overview.to_json())
        terminal.write_json(to_json({**document, "kinds": kinds}))
        return
    _print_stats(overview, kinds)
    while watch:
        SYSTEM_CLOCK.pause(_WATCH_S)
        overview, kinds = with_store(url, lambda store: _read_stats(store, minutes))
        terminal.console().clear()
        _print_stats(overview, kinds)


def _print_stats(overview: Overview, kinds: tuple[KindView, ...]) -> None:
    out = terminal.console()
    out.print(_headline(overview))
    if overview.queues:
        out.print()
        out.print(queue_table(overview.queues))
    if kinds:
        out.print()
        out.print(_kinds(kinds))
    out.print()
    out.print(_minutes(overview.minutes))


async def _read_stats(store: Store, minutes: int) -> tuple[Overview, tuple[KindView, ...]]:
    overview = await queries.overview(store, minutes=minutes)
    until = overview.minutes[-1].at + timedelta(minutes=1)
    return overview, await metrics.by_kind(store, since=overview.minutes[0].at, until=until)


def doctor(url: Url = None, as_json: AsJson = False) -> None:
    """Check the store, the queues and the workers; exit 1 if there is an error.

    \b
    Example:
      forge doctor
    """
    findings = with_forge(url, lambda forge: examine(forge.store))
    findings = worst_first([*findings, *_page_file_findings()])
    if as_json:
        terminal.write_json(to_json({"findings": findings}))
    else:
        _print_findings(findings)
    broken = any(finding.severity is Severity.ERROR for finding in findings)
    raise typer.Exit(FAILED if broken else OK)


def _page_file_findings() -> list[Finding]:
    """Findings about the page files of Mission Control, if the extra [web] is installed."""
    try:
        from forge_jobs.web import page_files
    except ModuleNotFoundError:
        return []
    return page_files.findings()


def _headline(overview: Overview) -> Text:
    line = Text()
    for status in JobStatus:
        if overview.counts[status]:
            line.append_text(
                Text.assemble(f"{overview.counts[status]:,} ", terminal.status(status), "  ")
            )
    if not line:
        line.append("No jobs.  ")
    slots = sum(sum(worker.slots.values()) for worker in overview.workers)
    busy = sum(worker.running for worker in overview.workers)
    line.append(
        f"\n{terminal.plural(len(overview.workers), 'worker')}, {busy} of {slots} slots busy"
    )
    line.append(f", oldest due job waits {terminal.span(overview.lag_s)}" if overview.lag_s else "")
    return line


def _kinds(kinds: tuple[KindView, ...]) -> Table:
    heads = ("DONE", "DEAD", "WAIT P50", "P95", "RUN P50", "P95", "P99", "MAX")
    rows = terminal.table("KIND", "QUEUE", *heads, right=heads, shrink=("KIND", "QUEUE"))
    for view in kinds:
        whole = view.whole
        rows.add_row(
            view.kind,
            view.queue,
            terminal.number(whole.done),
            terminal.alarm(whole.dead),
            *(terminal.span(span_s) for span_s in (whole.waited.p50_s, whole.waited.p95_s)),
            *(terminal.span(span_s) for span_s in (whole.ran.p50_s, whole.ran.p95_s)),
            *(terminal.span(span_s) for span_s in (whole.ran.p99_s, whole.ran.max_s)),
        )
    return rows


def _minutes(minutes: tuple[MinuteView, ...]) -> Table:
    heads = ("ENQUEUED", "DONE", "RETRIED", "DEAD", "CANCELLED", "RUN P95", "WAIT P95")
    rows = terminal.table("MINUTE (UTC)", *heads, right=heads)
    busy = [minute for minute in minutes if _activity(minute)] or list(minutes[-1:])
    for minute in busy:
        rows.add_row(
            f"{minute.at:%m-%d %H:%M}",
            terminal.number(minute.enqueued),
            terminal.number(minute.done),
            terminal.number(minute.retried),
            terminal.alarm(minute.dead),
            terminal.number(minute.cancelled),
            terminal.span(minute.run_p95_s),
            terminal.span(minute.wait_p95_s),
        )
    return rows


def _activity(minute: MinuteView) -> int:
    return minute.enqueued + minute.done + minute.retried + minute.dead + minute.cancelled


def _print_findings(findings: list[Finding]) -> None:
    out = terminal.console()
    rows = terminal.table("", "SUBJECT", "FINDING", fold=("FINDING", "SUBJECT"))
    for finding in findings:
        word, style = _LABELS[finding.severity]
        text = Text(finding.message)
        if finding.cure and finding.severity is not Severity.OK:
            text.append(f"\n→ {finding.cure}", style="bright_black")
        rows.add_row(Text(word, style=style), finding.subject, text)
    out.print(rows)
    counts = {severity: sum(f.severity is severity for f in findings) for severity in Severity}
    out.print(
        f"\n{terminal.plural(counts[Severity.ERROR], 'error')}, "
        f"{terminal.plural(counts[Severity.WARNING], 'warning')}, {counts[Severity.OK]} fine."
    )
