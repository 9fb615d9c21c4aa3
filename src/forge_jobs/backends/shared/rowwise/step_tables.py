"""Steps, waits and events in the tables of a row-wise store: ``step_ports.StepTables``."""

from collections.abc import Iterable, Sequence
from itertools import islice

from forge_jobs.core.events import NewEvent, WaitTopic, topic_of
from forge_jobs.core.instant import Instant, after
from forge_jobs.core.steps import StepRecord

from .step_ports import JobStep, StoredEvent, StoredWait
from .tables import Tables


class RowSteps:
    """The steps, waits and events within one write transaction."""

    def __init__(self, tables: Tables, now: Instant) -> None:
        self._tables = tables
        self._now = now

    # ---------------------------------------------------------------- steps

    def find(self, wanted: Sequence[tuple[int, str]]) -> dict[tuple[int, str], StepRecord]:
        histories = {job: self._tables.steps.get(job, {}) for job in {job for job, _ in wanted}}
        return {(job, name): histories[job][name] for job, name in wanted if name in histories[job]}

    def first(self, job: int, limit: int) -> list[StepRecord]:
        history = self._tables.steps.get(job, {})
        return [history[name] for name in sorted(history)[:limit]]

    def having(self, jobs: Iterable[int]) -> set[int]:
        return {job for job in jobs if job in self._tables.steps}

    def add(self, steps: Sequence[JobStep]) -> None:
        added: dict[int, dict[str, StepRecord]] = {}
        for job, step in steps:
            added.setdefault(job, {})[step.name] = step
        for job, new in added.items():
            self._tables.steps[job] = self._tables.steps.get(job, {}) | new

    def delete(self, job: int, began_from: Instant | None = None) -> None:
        history = self._tables.steps.pop(job, {})
        if began_from is not None:
            left = {name: step for name, step in history.items() if step.began_at < began_from}
            if left:
                self._tables.steps[job] = left

    # ---------------------------------------------------------------- waits

    def waits_of(self, jobs: Sequence[int]) -> dict[int, StoredWait]:
        waits = self._tables.waits
        return {job: waits[job] for job in jobs if job in waits}

    def add_wait(self, wait: StoredWait) -> None:
        self._tables.waits[wait.job] = wait
        self._tables.event_index.add_wait(wait)

    def delete_wait(self, job: int) -> None:
        self._tables.remove_wait(job)

    def waiting(self, event: StoredEvent, limit: int) -> list[int]:
        jobs = self._tables.event_index.waiting(event.topic)
        return list(islice((job for job in jobs if self._takes(job, event)), limit))

    def _takes(self, job: int, event: StoredEvent) -> bool:
        wait = self._tables.waits[job].wait
        return any(
            topic.topic == event.topic and _matches(event, topic, wait.began_at)
            for topic in wait.topics
        )

    # ---------------------------------------------------------------- events

    def first_event(
        self, topic: WaitTopic, began_at: Instant, sent_until: Instant | None
    ) -> StoredEvent | None:
        for seq in self._tables.event_index.of_topic(topic.topic):
            event = self._tables.events[seq]
            in_time = sent_until is None or event.sent_at <= sent_until
            if in_time and _matches(event, topic, began_at):
                return event
        return None

    def add_event(self, event: NewEvent) -> StoredEvent:
        stored = StoredEvent(
            self._tables.next_key("event"),
            topic_of(event.name, event.key),
            self._now,
            after(self._now, event.keep_s),
            event.payload,
        )
        self._tables.events[stored.seq] = stored
        self._tables.event_index.add(stored)
        return stored

    def take_event_key(self, event: NewEvent) -> bool:
        name = (event.name, event.dedupe_key or "")
        if self._tables.event_keys.get(name, 0) > self._now:
            return False
        self._tables.event_keys[name] = after(self._now, event.keep_s)
        return True

    def open_events(self, limit: int) -> list[StoredEvent]:
        return [self._tables.events[seq] for seq in islice(self._tables.event_index.open(), limit)]

    def set_open(self, event: StoredEvent, *, is_open: bool) -> None:
        self._tables.event_index.set_open(event.seq, is_open=is_open)

    def purge(self) -> None:
        """Delete events that are kept no longer and are delivered, and lapsed dedupe keys."""
        tables = self._tables
        for name, until in list(tables.event_keys.items()):
            if until <= self._now:
                del tables.event_keys[name]
        still_open = set(tables.event_index.open())
        for seq in list(tables.event_index.ended(self._now)):
            if seq not in still_open:
                tables.event_index.remove(tables.events.pop(seq))


def _matches(event: StoredEvent, topic: WaitTopic, began_at: Instant) -> bool:
    """Whether a topic of a wait takes an event: its job has not taken it yet, it was sent late
    enough, and it was kept when the wait began."""
    return event.seq > topic.after and event.sent_at >= topic.since and event.ends_at >= began_at
