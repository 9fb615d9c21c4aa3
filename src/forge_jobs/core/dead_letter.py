"""The ``on_dead`` successor of a dead job: its arguments and its request.

Every backend builds the request with ``successor`` in the transaction that makes a job dead.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from .instant import Instant
from .job import NewJob, Successor
from .limit_key import limit_key
from .names import MAX_TAGS
from .parent import Via, with_parent


class DeadJob(Struct, frozen=True, kw_only=True):
    """The dead job. ``payload`` is what it was enqueued with; times are microseconds.

    >>> @forge.task
    ... def tell_someone(job: DeadJob) -> None:
    ...     print(job.kind, job.error)
    >>> @forge.task(max_attempts=1, on_dead=tell_someone)
    ... def charge(card: str) -> None:
    ...     raise Dead("not a card number")
    >>> job = charge.enqueue("visa")
    >>> report = forge.drain().run()
    charge not a card number
    """

    id: str
    kind: str
    queue: str
    attempts: int
    error: str | None
    payload: Any
    enqueued_at: Instant
    died_at: Instant


class _Letter(Struct, frozen=True):
    job: DeadJob


def payload(
    *,
    job_id: str,
    kind: str,
    queue: str,
    attempts: int,
    error: str | None,
    payload: bytes,
    enqueued_at: Instant,
    died_at: Instant,
) -> bytes:
    """The arguments of the ``on_dead`` task: one parameter named ``job``.

    The dead job's own payload is included byte for byte.
    """
    return msgspec.json.encode(
        _Letter(
            DeadJob(
                id=job_id,
                kind=kind,
                queue=queue,
                attempts=attempts,
                error=error,
                payload=msgspec.Raw(payload),
                enqueued_at=enqueued_at,
                died_at=died_at,
            )
        )
    )


def successor(
    on_dead: Successor,
    letter: bytes,
    *,
    parent: str,
    tags: Sequence[str] = (),
    trace: str | None = None,
) -> NewJob:
    """The request for the ``on_dead`` task; ``letter`` is the ``payload`` above, ``parent`` the id
    of the dead job.

    It has the settings, lane and limits of its task, as any job of it. The tags and the trace of
    the dead job are added: hooks mark jobs with them at enqueue, and no hook sees this enqueue.
    """
    job = NewJob(
        kind=on_dead.kind,
        queue=on_dead.queue,
        max_attempts=on_dead.max_attempts,
        priority=on_dead.priority,
        timeout_s=on_dead.timeout_s,
        tags=tuple(dict.fromkeys((*on_dead.tags, *tags)))[:MAX_TAGS],
        lane=on_dead.lane,
        order=on_dead.order,
        track=on_dead.track,
        limit_key=None if on_dead.per is None else limit_key(on_dead.kind, on_dead.per, letter),
        on_dead=on_dead.on_dead,
        payload=letter,
        trace=trace,
        options=on_dead.options,
    )
    return with_parent(job, parent, Via.ON_DEAD)
