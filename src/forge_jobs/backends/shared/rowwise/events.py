"""Events: stored with a number, and delivered to the jobs that wait for them."""

from collections.abc import Sequence
from typing import Final

from forge_jobs.core.events import NewEvent, SentEvent

from . import waits
from .ports import JobTransaction, R
from .step_ports import StoredEvent

# Per call; the next exchanges resume the others.
MAX_RESUMED: Final = 500
_MAX_OPEN: Final = 100


def send(tx: JobTransaction[R], events: Sequence[NewEvent]) -> list[SentEvent]:
    """Store events and deliver them; one answer per event."""
    answers: list[SentEvent] = []
    left = MAX_RESUMED
    for event in events:
        if event.dedupe_key is not None and not tx.steps.take_event_key(event):
            answers.append(SentEvent(duplicate=True))
            continue
        stored = tx.steps.add_event(event)
        resumed, is_done = _deliver(tx, stored, left)
        if not is_done:
            tx.steps.set_open(stored, is_open=True)
        left -= resumed
        answers.append(SentEvent(resumed=resumed))
    return answers


def deliver(tx: JobTransaction[R], limit: int) -> int:
    """Deliver events that are not delivered to all jobs that wait for them; how many jobs were
    resumed.

    No wait can be missed where one transaction writes at a time: a job is suspended after a look
    for the event, and an event is sent to the jobs that are suspended by then.
    """
    resumed = 0
    while resumed < limit:
        events = tx.steps.open_events(_MAX_OPEN)
        if not events:
            break
        for event in events:
            count, is_done = _deliver(tx, event, limit - resumed)
            resumed += count
            if not is_done:
                return resumed
            tx.steps.set_open(event, is_open=False)
    return resumed


def _deliver(tx: JobTransaction[R], event: StoredEvent, limit: int) -> tuple[int, bool]:
    """How many jobs were resumed, and whether no other job waits for the event."""
    found = tx.steps.waiting(event, max(limit, 0) + 1)
    resumed = waits.resume(tx, found[: max(limit, 0)])
    return resumed, len(found) <= max(limit, 0)
