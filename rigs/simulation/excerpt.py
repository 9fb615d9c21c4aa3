"""The excerpt of a history for a violation: the events of one job and the faults around it."""

from rigs.simulation.checkers import Violation
from rigs.simulation.history import (
    Acknowledged,
    Fault,
    HandlerRan,
    History,
    Record,
    format_record,
    key_of,
)

LAST = 50


def excerpt(history: History, violation: Violation | None, last: int = LAST) -> list[str]:
    """The last events of the violation's job, with the faults of its actors; without a job, the
    last events of the simulation."""
    if violation is None or violation.key is None:
        return history.lines(last)
    own = [record for record in history.records if _is_about(record, violation.key)]
    if not own:
        return history.lines(last)
    began, ended, actors = own[0].at, own[-1].at, {record.who for record in own}
    chosen = [
        record
        for record in history.records
        if began <= record.at <= ended
        and (
            _is_about(record, violation.key) or (isinstance(record, Fault) and record.who in actors)
        )
    ]
    return [format_record(record) for record in chosen[-last:]]


def _is_about(record: Record, key: int) -> bool:
    match record:
        case HandlerRan(id=job) | Acknowledged(id=job):
            return key_of(job) == key
        case _:
            return getattr(record, "key", None) == key
