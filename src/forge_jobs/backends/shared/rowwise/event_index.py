"""The indexes of a row-wise store over events and waits, as ordered entries."""

from collections.abc import Iterator
from typing import Final

from forge_jobs.core.instant import Instant

from .index import OrderedEntries
from .step_ports import StoredEvent, StoredWait

_EVENTS: Final = ("events",)
_ENDS: Final = ("event ends",)
_OPEN: Final = ("event open",)


class EventIndex:
    """Answers are numbers of events and keys of jobs."""

    def __init__(self, ordered: OrderedEntries) -> None:
        self._entries = ordered

    def add_wait(self, stored: StoredWait) -> None:
        for topic in stored.wait.topics:
            self._entries.add(("wait", topic.topic), (stored.job,))

    def remove_wait(self, stored: StoredWait) -> None:
        for topic in stored.wait.topics:
            self._entries.remove(("wait", topic.topic), (stored.job,))

    def wait_topics(self) -> list[str]:
        """The topics that jobs wait for, in order."""
        return [group[1] for group in self._entries.groups(("wait",))]

    def waiting(self, topic: str) -> Iterator[int]:
        """The jobs that wait for a topic."""
        return (job for (job,) in self._entries.scan(("wait", topic)))

    def add(self, event: StoredEvent) -> None:
        self._entries.add(_EVENTS, (event.seq,))
        self._entries.add(("event", event.topic), (event.seq,))
        self._entries.add(_ENDS, (event.ends_at, event.seq))

    def remove(self, event: StoredEvent) -> None:
        self._entries.remove(_EVENTS, (event.seq,))
        self._entries.remove(("event", event.topic), (event.seq,))
        self._entries.remove(_ENDS, (event.ends_at, event.seq))

    def of_topic(self, topic: str) -> Iterator[int]:
        """The events of a topic, oldest first."""
        return (seq for (seq,) in self._entries.scan(("event", topic)))

    def newest(self, topic: str | None, below: int | None) -> Iterator[int]:
        """The events of a topic, or all, with numbers below the given one, newest first."""
        group = _EVENTS if topic is None else ("event", topic)
        return (seq for (seq,) in self._entries.scan_down(group, below))

    def ended(self, now: Instant) -> Iterator[int]:
        """The events whose end has passed."""
        for ends_at, seq in self._entries.scan(_ENDS):
            if ends_at > now:
                return
            yield seq

    def open(self) -> Iterator[int]:
        """The events that are not delivered to all jobs, oldest first."""
        return (seq for (seq,) in self._entries.scan(_OPEN))

    def set_open(self, seq: int, *, is_open: bool) -> None:
        (self._entries.add if is_open else self._entries.remove)(_OPEN, (seq,))
