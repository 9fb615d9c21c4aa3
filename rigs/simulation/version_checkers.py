"""The checkers of two releases side by side: what becomes of jobs that the older one refuses."""

from collections.abc import Iterator

import msgspec

from forge_jobs.core.status import Event, JobStatus
from rigs.simulation.checkers import Found, Violation
from rigs.simulation.final import FinalState
from rigs.simulation.history import (
    NEWER,
    Claimed,
    Deregistered,
    Fault,
    HeartbeatReceived,
    History,
    Record,
    Registered,
    Transitioned,
)
from rigs.simulation.plan import FRESH_KIND, WORK_KIND, Needs, Plan


def refused_jobs_wait(history: History, final: FinalState) -> Found:
    """A job that an older release refuses is dead only because of a value, and only if no newer
    process was alive from its last claim on. A simulation is shorter than the budget."""
    needs = dict(_needs(final))
    claimed_at: dict[int, int] = {}
    newer = _NewerProcesses()
    for record in history.effects:
        newer.read(record)
        if isinstance(record, Claimed):
            claimed_at[record.key] = record.at
        if not isinstance(record, Transitioned) or record.key not in needs:
            continue
        if record.target is JobStatus.DEAD and record.event in (Event.DIE, Event.MISSING):
            since = claimed_at.get(record.key, record.at)
            if needs[record.key] is not Needs.VALUE or newer.alive_since(since, record.at):
                yield Violation(
                    "refused",
                    record.key,
                    f"job {record.key} was refused by an older release and is dead at {record.at} "
                    f"({record.event}), although a newer one takes it",
                )


class _NewerProcesses:
    """The leases of processes of the newer release."""

    def __init__(self) -> None:
        self._is_newer: set[str] = set()
        self._spans: dict[int, tuple[int, int, int]] = {}

    def read(self, record: Record) -> None:
        match record:
            case Fault(what=what) if what == NEWER:
                self._is_newer.add(record.who)
            case Registered(at=at, owner=owner, lease_us=lease_us, replaced=replaced):
                for former in replaced:
                    self._spans.pop(former, None)
                if record.who in self._is_newer:
                    self._spans[owner] = (at, at + lease_us, lease_us)
            case HeartbeatReceived(at=at, owner=owner, alive=True) if owner in self._spans:
                since, end, lease_us = self._spans[owner]
                # A late heartbeat revives a process: it was not alive in between.
                self._spans[owner] = (at if at >= end else since, at + lease_us, lease_us)
            case HeartbeatReceived(owner=owner, alive=False) | Deregistered(owner=owner):
                self._spans.pop(owner, None)
            case _:
                pass

    def alive_since(self, since: int, until: int) -> bool:
        """Whether one process was alive all the time."""
        return any(start <= since and end > until for start, end, _ in self._spans.values())


def _needs(final: FinalState) -> Iterator[tuple[int, Needs | None]]:
    for key, row in final.rows.items():
        if row.kind == FRESH_KIND:
            yield key, None
        elif row.kind == WORK_KIND:
            needs = msgspec.json.decode(row.payload, type=Plan).needs
            if needs is not None:
                yield key, needs
