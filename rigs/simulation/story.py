"""What people read when a world broke a promise: the tale of one job among the faults around it."""

from rigs.simulation.checkers import Violation
from rigs.simulation.history import Acked, Fault, History, Ran, Record, key_of, line

LAST = 50


def story(history: History, violation: Violation | None, last: int = LAST) -> list[str]:
    """The last events that concern the violated job, with the faults of the nodes that had it;
    without a job, the last events of the world."""
    if violation is None or violation.key is None:
        return history.lines(last)
    own = [record for record in history.records if _is_about(record, violation.key)]
    if not own:
        return history.lines(last)
    began, ended, actors = own[0].at, own[-1].at, {record.who for record in own}
    told = [
        record
        for record in history.records
        if began <= record.at <= ended
        and (
            _is_about(record, violation.key) or (isinstance(record, Fault) and record.who in actors)
        )
    ]
    return [line(record) for record in told[-last:]]


def _is_about(record: Record, key: int) -> bool:
    match record:
        case Ran(id=job) | Acked(id=job):
            return key_of(job) == key
        case _:
            return getattr(record, "key", None) == key
