"""Holds what waits for the next exchange: finishes, releases, start marks and notes."""

from dataclasses import dataclass

from forge_jobs.core.decide import Finish
from forge_jobs.core.job import Claim
from forge_jobs.core.status import Event
from forge_jobs.engine.running.run import NEVER, Run, RunState
from forge_jobs.store.jobs import Note

from .wake_signal import WakeSignal

MAX_BATCH = 500
_NOTES_DELAY_S = 0.25
_SMALL_BATCH = 64


@dataclass(frozen=True, slots=True)
class Batch:
    """What one exchange writes. ``marks``: prefetched runs that have started since."""

    finishes: list[Finish]
    releases: list[Claim]
    marks: list[Run]
    notes: list[Note]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.finishes or self.releases or self.marks or self.notes)

    def is_all_done(self, min_finishes: int) -> bool:
        """Whether it has at least ``min_finishes`` finishes, all "done", and no releases."""
        return len(self.finishes) >= min_finishes and not self.releases and _all_done(self.finishes)


# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_RUNNING, _DONE = RunState.RUNNING, Event.DONE


EMPTY_BATCH = Batch([], [], [], [])


class FinishBuffer:
    """Gathers the next batch while an exchange is in flight. Only the job loop uses it.

    A finish is *unwritten* until the store has answered it with a verdict. ``has_room`` bounds the
    unwritten ones, and so the runs that a crash would repeat.
    """

    __slots__ = (
        "_finishes",
        "_gathering_since",
        "_in_flight",
        "_mark_delay_s",
        "_marks",
        "_marks_since",
        "_max_age_s",
        "_max_idle",
        "_max_overlapped",
        "_max_unwritten",
        "_notes_since",
        "_oldest_at",
        "_releases",
        "_unsent_notes",
        "_wake",
        "_with_notes",
    )  # fmt: skip

    def __init__(
        self,
        wake: WakeSignal,
        *,
        max_unwritten: int,
        max_age_s: float,
        mark_delay_s: float,
        overlap: bool = False,
    ) -> None:
        self._wake = wake
        self._max_unwritten = max_unwritten
        self._max_overlapped = (max_unwritten + 1) // 2 if overlap else max_unwritten
        self._max_age_s = max_age_s
        self._mark_delay_s = mark_delay_s
        self.clear()

    def clear(self) -> None:
        """Drop everything: this process was declared dead and may not write any more."""
        self._finishes: list[Finish] = []
        self._releases: list[Claim] = []
        self._marks: list[Run] = []
        self._with_notes: list[Run] = []
        self._unsent_notes: list[Note] = []
        self._in_flight = 0
        self._max_idle = self._max_overlapped
        self._gathering_since = self._oldest_at = self._marks_since = self._notes_since = NEVER

    def add(self, finish: Finish, at: float) -> None:
        """Write this finish with the next exchange."""
        finishes = self._finishes
        if not finishes:
            self._gathering_since = at
            if at < self._oldest_at:
                self._oldest_at = at
            self._wake.notify()
        finishes.append(finish)

    def release(self, claim: Claim) -> None:
        """Release this claim with the next exchange."""
        self._releases.append(claim)
        self._wake.notify()

    def mark_started(self, run: Run, now: float) -> None:
        """Record with a later exchange that a prefetched run has started, unless it ends soon."""
        if not self._marks:
            self._marks_since = now
            self._wake.notify()
        self._marks.append(run)

    def add_notes(self, run: Run, now: float) -> None:
        """Write the notes of this run with the next exchange."""
        if not self._with_notes:
            self._notes_since = now
            self._wake.notify()
        self._with_notes.append(run)

    def has_room(self, now: float) -> bool:
        """Back-pressure: whether another job may start, by number and age of unwritten finishes.

        With ``overlap``, half of the bound is kept for the batch that gathers while another is in
        flight, so that neither this process nor the store waits for the other. After a failed
        call the whole bound applies until a batch is written.
        """
        max_unwritten = self._max_unwritten if self._in_flight else self._max_idle
        return (
            len(self._finishes) + self._in_flight < max_unwritten
            and now - self._oldest_at < self._max_age_s
        )

    @property
    def unwritten(self) -> int:
        """Finishes without a verdict yet."""
        return len(self._finishes) + self._in_flight

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be written."""
        return not (self._finishes or self._releases or self._with_notes or self._in_flight)

    def may_wait(self) -> bool:
        """Whether the next batch is small and has no release that another worker may wait for."""
        return not self._releases and 0 < len(self._finishes) < _SMALL_BATCH

    def has_all_done(self, min_finishes: int) -> bool:
        """Whether no batch is in flight and at least ``min_finishes`` wait, all of them "done"."""
        if self._in_flight or len(self._finishes) < min_finishes or self._releases:
            return False
        return _all_done(self._finishes)

    def notify(self) -> None:
        """Wake the exchange loop."""
        self._wake.notify()

    def due_at(self) -> float:
        """When the next exchange is due for the sake of this buffer; minus infinity for at once."""
        if self._in_flight:
            # The background finisher has a batch in flight and wakes the loop when it is done.
            return NEVER
        if self._finishes or self._releases:
            return -NEVER
        return min(self._marks_since + self._mark_delay_s, self._notes_since + _NOTES_DELAY_S)

    def take(self, limit: int = MAX_BATCH, *, now: float = NEVER) -> Batch:
        """The next batch, which is in flight from now on; empty while another one is.

        A run that started just before ``now`` is not marked yet: most runs end before their mark
        is due, and then it need not be written.
        """
        if self._in_flight:
            return EMPTY_BATCH
        finishes, rest = self._finishes[:limit], self._finishes[limit:]
        batch = Batch(
            finishes, self._releases[:MAX_BATCH], self._running_marks(now), self._take_notes()
        )
        self._releases = self._releases[MAX_BATCH:]
        if not rest:
            self._gathering_since = NEVER
        self._finishes = rest
        self._in_flight = len(finishes)
        return batch

    def batch_written(self) -> None:
        """The batch in flight was answered."""
        self._in_flight = 0
        self._max_idle = self._max_overlapped
        self._oldest_at = self._gathering_since

    def put_back(self, batch: Batch) -> None:
        """The batch in flight was not written, or perhaps not: send it again, before all others."""
        self._finishes[:0] = batch.finishes
        self._releases[:0] = batch.releases
        self._marks[:0] = batch.marks
        self._unsent_notes = batch.notes
        self._in_flight = 0
        self._max_idle = self._max_unwritten
        self._gathering_since = self._oldest_at

    def _running_marks(self, now: float) -> list[Run]:
        """The runs to mark: those that run for half of the delay or longer."""
        started_by = now - self._mark_delay_s / 2
        marks: list[Run] = []
        later: list[Run] = []
        for run in self._marks:
            if run.state is _RUNNING:
                (marks if run.started_at <= started_by else later).append(run)
        self._marks = later
        self._marks_since = later[0].started_at if later else NEVER
        return marks

    def _take_notes(self) -> list[Note]:
        notes, self._unsent_notes = self._unsent_notes, []
        for run in self._with_notes:
            note = run.take_notes()
            if note is not None:
                notes.append(note)
        self._with_notes = []
        self._notes_since = NEVER
        return notes


def _all_done(finishes: list[Finish]) -> bool:
    return all(finish.event is _DONE for finish in finishes)
