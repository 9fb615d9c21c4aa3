"""The checks of outages: how work resumed after a server was back. Pure functions.

A history contains *down* (before the server was stopped) and *up* (when it was available again,
with the counts of the outage). *wall* is the wall clock time, which the store uses.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rigs.storms.checks import CheckReport

Entry = dict[str, Any]
RESUME_S = 5.0
# Heartbeat, exchange loop, listener and services of a process reconnect independently.
ATTEMPTS_PER_S = 20.0
CPU_SHARE = 0.25


@dataclass(frozen=True)
class OutageEvidence:
    """The state of the store at the end.

    ``starts``: instants at which claims were marked as started, by process. ``crashes``: runs that
    were reaped. ``dead``: processes declared dead. ``woken``: how many notifications to idle
    workers woke all of them at once, and how many were sent.
    """

    starts: dict[int, list[float]]
    crashes: int
    dead: int
    woken: tuple[int, int]


def check_outages(report: CheckReport, entries: Iterable[Entry], evidence: OutageEvidence) -> None:
    """Add the findings and figures about outages to a report."""
    ups = [entry for entry in entries if entry["op"] == "up"]
    findings, figures = report.findings, report.figures
    findings["nothing was interrupted"] = [] if ups else ["the server was never down"]
    findings["slow to resume"] = list(_slow(ups, evidence))
    findings["busy while it was down"] = list(_busy(ups))
    findings["healthy workers reaped"] = list(_reaped(evidence))
    findings["notifications missed"] = list(_missed_notifications(evidence))
    delays = [delay for _, _, delay in _delays(ups, evidence)]
    counted = [one["attempts"] / one["seconds"] for one in ups if one["attempts"] is not None]
    figures["outages"] = len(ups)
    figures["longest outage"] = f"{max(one['seconds'] for one in ups):.1f} s" if ups else "–"
    figures["slowest worker to resume"] = f"{max(delays):.2f} s" if delays else "–"
    figures["attempts to connect"] = (
        f"{max(counted):.1f} a second, all processes together" if counted else "–"
    )
    figures["processor while down"] = (
        f"{max(one['cpu'] / one['seconds'] for one in ups):.0%} of a core, all workers together"
        if ups
        else "–"
    )
    figures["all woken by a notification"] = "{} of {}".format(*evidence.woken)


def _delays(ups: Iterable[Entry], evidence: OutageEvidence) -> Iterator[tuple[Entry, int, float]]:
    """How long each process took until the store marked its first start after each outage."""
    for up in ups:
        for owner, starts in evidence.starts.items():
            first = min((at for at in starts if at >= up["wall"]), default=None)
            if first is not None:
                yield up, owner, first - up["wall"]


def _slow(ups: list[Entry], evidence: OutageEvidence) -> Iterator[str]:
    # An empty queue proves nothing.
    waited = [up for up in ups if up["waiting"]]
    for _, owner, delay in _delays(waited, evidence):
        if delay > RESUME_S:
            yield f"process {owner} started its first job {delay:.1f} s after the server was back"
    last = max((at for starts in evidence.starts.values() for at in starts), default=0.0)
    for up in waited:
        # One worker may claim all jobs; only if there is more work must every worker start some.
        if last < up["wall"] + RESUME_S:
            continue
        for owner, starts in evidence.starts.items():
            if not any(at >= up["wall"] for at in starts):
                yield f"process {owner} started nothing after the server was back"


def _busy(ups: list[Entry]) -> Iterator[str]:
    for up in ups:
        max_attempts = ATTEMPTS_PER_S * up["processes"] * up["seconds"] + 10 * up["processes"]
        if up["attempts"] is not None and up["attempts"] > max_attempts:
            yield f"{up['attempts']} attempts to connect in {up['seconds']:.1f} s"
        if up["cpu"] > CPU_SHARE * up["processes"] * up["seconds"] + 1.0:
            yield f"{up['cpu']:.1f} s of processor time in {up['seconds']:.1f} s"


def _reaped(evidence: OutageEvidence) -> Iterator[str]:
    if evidence.crashes:
        yield f"{evidence.crashes} runs were reaped from live workers"
    if evidence.dead:
        yield f"{evidence.dead} live workers were declared dead"


def _missed_notifications(evidence: OutageEvidence) -> Iterator[str]:
    woken, notified = evidence.woken
    if woken * 2 < notified:
        yield f"only {woken} of {notified} notifications woke all workers at once"
