"""The judges of outages: how work went on once a server was there again. Pure, as those of kills.

A history holds *down* (before the server was stopped) and *up* (when it answered again, with what
was counted while it was away). *wall* is the time of day, in which the store writes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rigs.storms.checks import Judgement

Entry = dict[str, Any]
RESUME_S = 5.0
# Heartbeat, pump, listening and services of a process all try by themselves, each with its pause.
ATTEMPTS_PER_S = 20.0
CPU_SHARE = 0.25


@dataclass(frozen=True)
class Aftermath:
    """What the store says at the end.

    ``starts``: instants at which claims were marked as started, by process. ``crashes``: runs that
    were taken away from a process held for dead. ``dead``: processes held for dead.
    ``woken``: of so many notifications to idle workers, how many woke all of them at once.
    """

    starts: dict[int, list[float]]
    crashes: int
    dead: int
    woken: tuple[int, int]


def check_outages(judgement: Judgement, entries: Iterable[Entry], aftermath: Aftermath) -> None:
    """Add what an outage must not do to what holds for every storm."""
    ups = [entry for entry in entries if entry["op"] == "up"]
    findings, figures = judgement.findings, judgement.figures
    findings["slow to go on"] = list(_slow(ups, aftermath))
    findings["busy while it was down"] = list(_busy(ups))
    findings["healthy workers reaped"] = list(_reaped(aftermath))
    findings["deaf afterwards"] = list(_deaf(aftermath))
    delays = [delay for _, _, delay in _delays(ups, aftermath)]
    counted = [one["attempts"] / one["seconds"] for one in ups if one["attempts"] is not None]
    figures["outages"] = len(ups)
    figures["longest outage"] = f"{max(one['seconds'] for one in ups):.1f} s" if ups else "–"
    figures["slowest worker to go on"] = f"{max(delays):.2f} s" if delays else "–"
    figures["attempts to connect"] = (
        f"{max(counted):.1f} a second, all processes together" if counted else "–"
    )
    figures["processor while down"] = (
        f"{max(one['cpu'] / one['seconds'] for one in ups):.0%} of a core, all workers together"
        if ups
        else "–"
    )
    figures["all woken by a notification"] = "{} of {}".format(*aftermath.woken)


def _delays(ups: Iterable[Entry], aftermath: Aftermath) -> Iterator[tuple[Entry, int, float]]:
    """How long each process took until the store marked its first start after each outage."""
    for up in ups:
        for owner, starts in aftermath.starts.items():
            first = min((at for at in starts if at >= up["wall"]), default=None)
            if first is not None:
                yield up, owner, first - up["wall"]


def _slow(ups: list[Entry], aftermath: Aftermath) -> Iterator[str]:
    # A queue that had run dry proves nothing.
    waited = [up for up in ups if up["waiting"]]
    for _, owner, delay in _delays(waited, aftermath):
        if delay > RESUME_S:
            yield f"process {owner} started its first job {delay:.1f} s after the server was back"
    last = max((at for starts in aftermath.starts.values() for at in starts), default=0.0)
    for up in waited:
        # One worker may take all there is; only if work goes on must everybody get some.
        if last < up["wall"] + RESUME_S:
            continue
        for owner, starts in aftermath.starts.items():
            if not any(at >= up["wall"] for at in starts):
                yield f"process {owner} started nothing after the server was back"


def _busy(ups: list[Entry]) -> Iterator[str]:
    for up in ups:
        most = ATTEMPTS_PER_S * up["processes"] * up["seconds"] + 10 * up["processes"]
        if up["attempts"] is not None and up["attempts"] > most:
            yield f"{up['attempts']} attempts to connect in {up['seconds']:.1f} s"
        if up["cpu"] > CPU_SHARE * up["processes"] * up["seconds"] + 1.0:
            yield f"{up['cpu']:.1f} s of processor time in {up['seconds']:.1f} s"


def _reaped(aftermath: Aftermath) -> Iterator[str]:
    if aftermath.crashes:
        yield f"{aftermath.crashes} runs were taken away from living workers"
    if aftermath.dead:
        yield f"{aftermath.dead} living workers were held for dead"


def _deaf(aftermath: Aftermath) -> Iterator[str]:
    woken, notified = aftermath.woken
    if woken * 2 < notified:
        yield f"only {woken} of {notified} notifications woke all workers at once"
