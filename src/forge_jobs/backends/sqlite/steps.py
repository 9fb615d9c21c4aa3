"""Steps, waits and events in the file: ``step_ports.StepTables`` by statements."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from forge_jobs.backends.shared.rowwise.step_ports import JobStep, StoredEvent, StoredWait
from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.events import NewEvent, Wait, WaitTopic, dedupe_kind, topic_of
from forge_jobs.core.instant import Instant, after
from forge_jobs.core.steps import (
    MAX_CLAIMED_BYTES,
    MAX_CLAIMED_STEPS,
    StepKind,
    StepRecord,
)

from .counters import Execute
from .json_text import as_json, read_keys

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "steps.sql")

_FIND: Final = SQL["find_steps"]
_FIRST: Final = SQL["first_steps"]
_OF_JOBS: Final = SQL["steps_of_jobs"]
_ADD: Final = SQL["add_steps"]
# Powers of two: any number of steps is stored by a handful of statements, all of them cached.
_SIZES: Final = (64, 32, 16, 8, 4, 2, 1)
_COLUMNS: Final = 8
# Events that one call of ``purge`` deletes.
_MAX_PURGED: Final = 10_000


def _repeated(times: int) -> str:
    head, _, values = _ADD.rpartition("VALUES")
    return f"{head}VALUES{', '.join([values] * times)}"


_ADDS: Final = {size: _repeated(size) for size in _SIZES}


class SqliteSteps:
    """The steps, waits and events within one write transaction. ``before_add`` is called before a
    step is stored."""

    __slots__ = ("_before_add", "_execute", "_now")

    def __init__(self, execute: Execute, now: Instant, before_add: Callable[[], None]) -> None:
        self._execute = execute
        self._now = now
        self._before_add = before_add

    # ---------------------------------------------------------------- steps

    def find(self, wanted: Sequence[tuple[int, str]]) -> dict[tuple[int, str], StepRecord]:
        rows = self._execute(_FIND, (as_json(wanted),)).fetchall()
        return {(row[0], row[1]): read_step(row[1:]) for row in rows}

    def first(self, job: int, limit: int) -> list[StepRecord]:
        """Likewise; ends with the first step beyond the bytes that come with a claim."""
        found: list[StepRecord] = []
        size = 0
        for row in self._execute(_FIRST, (job, limit)):
            found.append(read_step(row[1:]))
            size += found[-1].size
            if size > MAX_CLAIMED_BYTES and len(found) > 1:
                break
        return found

    def first_of(self, jobs: Sequence[int]) -> dict[int, list[StepRecord]]:
        """What ``first`` gives for several jobs, in one statement if all of it is small."""
        limit = MAX_CLAIMED_STEPS + 1
        found: dict[int, list[StepRecord]] = {job: [] for job in jobs}
        size = 0
        for count, row in enumerate(self._execute(_OF_JOBS, (as_json(jobs), limit)), 1):
            found[row[0]].append(read_step(row[1:]))
            size += row[8]
            if count == limit or size > MAX_CLAIMED_BYTES:
                return {job: self.first(job, limit) for job in jobs}
        return found

    def having(self, jobs: Iterable[int]) -> set[int]:
        (found,) = self._execute(SQL["jobs_with_steps"], (as_json(list(jobs)),)).fetchone()
        return set(read_keys(found))

    def add(self, steps: Sequence[JobStep]) -> None:
        self._before_add()
        values: list[object] = []
        for job, step in steps:
            values += (
                job, step.name, step.kind.value, step.epoch, step.began_at, step.ended_at,
                step.fingerprint, step.value,
            )  # fmt: skip
        start, left = 0, len(steps)
        for size in _SIZES:
            width = size * _COLUMNS
            while left >= size:
                self._execute(_ADDS[size], values[start : start + width])
                start, left = start + width, left - size

    def delete(self, job: int, began_from: Instant | None = None) -> None:
        if began_from is None:
            self._execute(SQL["delete_steps"], (as_json([job]),))
        else:
            self._execute(SQL["delete_steps_of"], (job, began_from))

    # ---------------------------------------------------------------- waits

    def waits_of(self, jobs: Sequence[int]) -> dict[int, StoredWait]:
        heads: dict[int, tuple[Any, ...]] = {}
        topics: dict[int, list[WaitTopic]] = {}
        for job, epoch, step, began_at, deadline, *topic in self._execute(
            SQL["waits_of"], (as_json(jobs),)
        ).fetchall():
            heads[job] = (epoch, step, began_at, deadline)
            topics.setdefault(job, []).append(WaitTopic(*topic))
        return {
            job: StoredWait(job, epoch, Wait(step, began_at, tuple(topics[job]), deadline))
            for job, (epoch, step, began_at, deadline) in heads.items()
        }

    def add_wait(self, wait: StoredWait) -> None:
        asked = wait.wait
        for topic in asked.topics:
            self._execute(
                SQL["add_wait"],
                (
                    topic.topic, wait.job, wait.epoch, asked.step, asked.began_at, topic.after,
                    topic.since, asked.deadline,
                ),
            )  # fmt: skip

    def delete_wait(self, job: int) -> None:
        self._execute(SQL["delete_wait"], (job,))

    def waiting(self, event: StoredEvent, limit: int) -> list[int]:
        values = (event.topic, event.seq, event.sent_at, event.ends_at, limit)
        (found,) = self._execute(SQL["waiting_for"], values).fetchone()
        return read_keys(found)

    # ---------------------------------------------------------------- events

    def first_event(
        self, topic: WaitTopic, began_at: Instant, sent_until: Instant | None
    ) -> StoredEvent | None:
        values = (topic.topic, topic.after, topic.since, began_at, sent_until)
        found = self._execute(SQL["first_event"], values).fetchone()
        return None if found is None else StoredEvent(*found)

    def add_event(self, event: NewEvent, *, is_open: bool = False) -> StoredEvent:
        topic, ends_at = topic_of(event.name, event.key), after(self._now, event.keep_s)
        values = (topic, self._now, ends_at, 1 if is_open else None, event.payload)
        seq = self._execute(SQL["add_event"], values).lastrowid
        assert seq is not None
        return StoredEvent(seq, topic, self._now, ends_at, event.payload)

    def take_event_key(self, event: NewEvent) -> bool:
        until = after(self._now, event.keep_s)
        values = (dedupe_kind(event.name), event.dedupe_key, until, self._now)
        return self._execute(SQL["take_event_key"], values).rowcount == 1

    def open_events(self, limit: int) -> list[StoredEvent]:
        return [StoredEvent(*row) for row in self._execute(SQL["open_events"], (limit,)).fetchall()]

    def set_open(self, event: StoredEvent, *, is_open: bool) -> None:
        self._execute(SQL["set_open"], (event.seq, 1 if is_open else None))

    def purge(self) -> None:
        """Delete events that are kept no longer and are delivered."""
        self._execute(SQL["delete_ended_events"], (self._now, _MAX_PURGED))


def read_step(row: Sequence[Any]) -> StepRecord:
    """A step from its columns, beginning with the name."""
    name, kind, epoch, began_at, ended_at, value, fingerprint, size = row
    return StepRecord(name, StepKind(kind), epoch, began_at, ended_at, value, fingerprint, size)
