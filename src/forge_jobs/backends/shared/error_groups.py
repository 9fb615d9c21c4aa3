"""Error groups as every store keeps them: one record per group, changed by ``core.error_groups``.

A store collects the failures of a transaction and calls ``count`` once before the commit, if there
were any.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

from msgspec import Struct

from forge_jobs.core import failures
from forge_jobs.core.error_groups import (
    GIVES_WAY_AFTER,
    MAX_GROUPS,
    MAX_LATEST_CHARS,
    MAX_SAMPLES,
    OTHER,
    ErrorGroup,
    FailureCount,
    bounded,
    merge_all,
)
from forge_jobs.core.failures import FailureGroup
from forge_jobs.core.instant import Instant
from forge_jobs.kit.redact import prose


class FailedAttempt(Struct, frozen=True):
    """One failed attempt of a job, as a transaction collects it."""

    job: str
    owner: int | None
    kind: str
    queue: str
    error: str
    group: FailureGroup


class Worker(Struct, frozen=True):
    """What a group says of the process of an attempt."""

    label: str = ""
    version: str = ""


class GroupTable(Protocol):
    """The table of groups inside a write transaction."""

    def load(self, ids: Iterable[str]) -> dict[str, ErrorGroup]:
        """The groups with these ids; missing ones are left out."""
        ...

    def put(self, groups: Sequence[ErrorGroup]) -> None: ...

    def size(self) -> int:
        """How many groups there are, without ``OTHER``."""
        ...

    def purge(self, before: Instant, limit: int) -> int:
        """Delete groups last seen before then, the oldest first; how many."""
        ...


@lru_cache(maxsize=64)
def group_of(error: str, traceback: str | None) -> FailureGroup:
    """The group of a failure, with secrets masked as in tracebacks."""
    return failures.group_of(error, traceback, prose)


def latest(error: str) -> str:
    """A message as a group shows it."""
    return prose(error[: 2 * MAX_LATEST_CHARS])[:MAX_LATEST_CHARS]


def count(
    table: GroupTable,
    attempts: Sequence[FailedAttempt],
    now: Instant,
    worker_of: Callable[[int], Worker],
) -> None:
    """Count the failed attempts of a transaction."""
    owners = {attempt.owner for attempt in attempts} - {None}
    workers = {owner: worker_of(owner) for owner in owners if owner is not None}
    add(table, _summed(attempts, now, workers))


def add(table: GroupTable, added: Sequence[FailureCount]) -> None:
    """Merge failures into the groups of a table."""
    known = table.load(dict.fromkeys(failure.group for failure in added))
    new = new_groups(added, known)
    if new:
        room = MAX_GROUPS - table.size()
        if room < new:
            before = max(failure.at for failure in added) - GIVES_WAY_AFTER
            room += table.purge(before, new - max(room, 0))
        added = bounded(added, known, room)
        if any(failure.group == OTHER for failure in added):
            known |= table.load([OTHER])
    table.put(merge_all(known, added))


def new_groups(added: Sequence[FailureCount], known: Container[str]) -> int:
    """How many of the groups of these failures are not known."""
    return len({failure.group for failure in added if failure.group not in known})


def _summed(
    attempts: Sequence[FailedAttempt], now: Instant, workers: Mapping[int, Worker]
) -> list[FailureCount]:
    """One failure per group, owner, kind and queue."""
    parts: dict[tuple[str, int | None, str, str], list[FailedAttempt]] = {}
    for attempt in attempts:
        name = (attempt.group.id, attempt.owner, attempt.kind, attempt.queue)
        parts.setdefault(name, []).append(attempt)
    summed: list[FailureCount] = []
    for (_, owner, kind, queue), part in parts.items():
        last, worker = part[-1], Worker() if owner is None else workers[owner]
        summed.append(
            FailureCount(
                group=last.group.id,
                type=last.group.type,
                message=last.group.message,
                frame=last.group.frame,
                latest=latest(last.error),
                at=now,
                kind=kind,
                queue=queue,
                worker=worker.label,
                version=worker.version,
                count=len(part),
                jobs=tuple(attempt.job for attempt in part[: -MAX_SAMPLES - 1 : -1]),
            )
        )
    return summed
