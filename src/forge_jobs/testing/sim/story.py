"""What people read when a world broke a promise: the tale of one job among the faults around it."""

from collections.abc import Sequence

from .checkers import Violation
from .history import Acked, Called, Fault, History, Ran, Record, Stored, line

LAST = 50


def story(history: History, violation: Violation | None, last: int = LAST) -> list[str]:
    """The last events that concern the violated job, with the faults between them; without a job,
    the last events of the world."""
    if violation is None or violation.key is None:
        return history.lines(last)
    ids = [record.id for record in history.of(Stored) if record.key == violation.key]
    told = [record for record in history.records if _concerns(record, violation.key, ids)]
    return [line(record) for record in told[-last:]]


def _concerns(record: Record, key: int, ids: Sequence[str]) -> bool:
    match record:
        case Fault():
            return True
        case Ran(id=job) | Acked(id=job):
            return job in ids
        case Called():
            return False
        case _:
            return getattr(record, "key", None) == key
