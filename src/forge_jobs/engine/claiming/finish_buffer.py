"""What waits for the next exchange: endings, hand-backs, start marks and notes."""

from dataclasses import dataclass

from forge_jobs.core.decide import Finish
from forge_jobs.core.job import Claim
from forge_jobs.core.status import Event
from forge_jobs.engine.running.run import NEVER, Run, RunState
from forge_jobs.store.jobs import Note

from .wake_signal import WakeSignal

MAX_BATCH = 500
_NOTE_S = 0.25
_FEW = 64


@dataclass(frozen=True, slots=True)
class Batch:
    """What one exchange carries."""

    finishes: list[Finish]
    releases: list[Claim]
    marks: list[Run]
    notes: list[Note]

    @property
    def is_nothing(self) -> bool:
        """Whether it carries nothing."""
        return not (self.finishes or self.releases or self.marks or self.notes)

    def is_plain(self, least: int) -> bool:
        """Whether it holds so many endings, all of them "done", and gives nothing back."""
        return len(self.finishes) >= least and not self.releases and _all_done(self.finishes)


# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_RUNNING, _DONE = RunState.RUNNING, Event.DONE


NOTHING = Batch([], [], [], [])


class FinishBuffer:
    """Gathers while an exchange is under way. Only the job loop touches it.

    An ending is *unwritten* until the store has judged it. ``has_room`` is the bound that keeps a
    crash from repeating more than a few runs.
    """

    __slots__ = (
        "_alone", "_bell", "_finishes", "_half", "_in_flight", "_kept_notes", "_mark_s",
        "_marked_at", "_marks", "_most", "_noted", "_noted_at", "_oldest", "_releases", "_since",
        "_span_s",
    )  # fmt: skip

    def __init__(
        self, bell: WakeSignal, *, most: int, span_s: float, mark_s: float, overlap: bool = False
    ) -> None:
        self._bell = bell
        self._most = most
        self._half = (most + 1) // 2 if overlap else most
        self._span_s = span_s
        self._mark_s = mark_s
        self.clear()

    def clear(self) -> None:
        """Forget everything: this process was declared dead and may write nothing any more."""
        self._finishes: list[Finish] = []
        self._releases: list[Claim] = []
        self._marks: list[Run] = []
        self._noted: list[Run] = []
        self._kept_notes: list[Note] = []
        self._in_flight = 0
        self._alone = self._half
        self._since = self._oldest = self._marked_at = self._noted_at = NEVER

    def add(self, finish: Finish, at: float) -> None:
        """An ending to write."""
        finishes = self._finishes
        if not finishes:
            self._since = at
            if at < self._oldest:
                self._oldest = at
            self._bell.notify()
        finishes.append(finish)

    def release(self, claim: Claim) -> None:
        """A claim to hand back."""
        self._releases.append(claim)
        self._bell.notify()

    def mark(self, run: Run, now: float) -> None:
        """A prefetched run that has started."""
        if not self._marks:
            self._marked_at = now
            self._bell.notify()
        self._marks.append(run)

    def noted(self, run: Run, now: float) -> None:
        """A run with something to say."""
        if not self._noted:
            self._noted_at = now
            self._bell.notify()
        self._noted.append(run)

    def has_room(self, now: float) -> bool:
        """Whether another job may start although some endings are not written yet.

        With ``overlap`` half of what may be unwritten is for the batch that gathers while another
        is under way, so that neither this process nor the store waits for the other. While calls
        fail there is none.
        """
        most = self._most if self._in_flight else self._alone
        return len(self._finishes) + self._in_flight < most and now - self._oldest < self._span_s

    @property
    def unwritten(self) -> int:
        """Endings the store has not judged."""
        return len(self._finishes) + self._in_flight

    @property
    def is_empty(self) -> bool:
        """Whether nothing needs to be written."""
        return not (self._finishes or self._releases or self._noted or self._in_flight)

    def may_wait(self) -> bool:
        """Whether the next batch holds a few endings and nothing that others wait for."""
        return not self._releases and 0 < len(self._finishes) < _FEW

    def has_plain(self, least: int) -> bool:
        """Whether nothing is under way and so many endings wait, all of them "done"."""
        if self._in_flight or len(self._finishes) < least or self._releases:
            return False
        return _all_done(self._finishes)

    def notify(self) -> None:
        """Wake the pump."""
        self._bell.notify()

    def due_at(self) -> float:
        """When the next exchange should go; minus infinity for at once."""
        if self._in_flight:
            # Under way beside the pump; it is told when that is over.
            return NEVER
        if self._finishes or self._releases:
            return -NEVER
        return min(self._marked_at + self._mark_s, self._noted_at + _NOTE_S)

    def take(self, limit: int = MAX_BATCH) -> Batch:
        """The next batch; what is added from now on goes with the one after it.

        Nothing as long as another batch is under way.
        """
        if self._in_flight:
            return NOTHING
        finishes, rest = self._finishes[:limit], self._finishes[limit:]
        batch = Batch(
            finishes, self._releases[:MAX_BATCH], self._running_marks(), self._take_notes()
        )
        self._releases = self._releases[MAX_BATCH:]
        if not rest:
            self._since = NEVER
        self._finishes = rest
        self._in_flight = len(finishes)
        return batch

    def written(self) -> None:
        """The batch under way has been judged."""
        self._in_flight = 0
        self._alone = self._half
        self._oldest = self._since

    def put_back(self, batch: Batch) -> None:
        """The batch under way was not written, or perhaps not: it goes again, first."""
        self._finishes[:0] = batch.finishes
        self._releases[:0] = batch.releases
        self._marks[:0] = batch.marks
        self._kept_notes = batch.notes
        self._in_flight = 0
        self._alone = self._most
        self._since = self._oldest

    def _running_marks(self) -> list[Run]:
        marks = [run for run in self._marks if run.state is _RUNNING]
        self._marks = []
        self._marked_at = NEVER
        return marks

    def _take_notes(self) -> list[Note]:
        notes, self._kept_notes = self._kept_notes, []
        for run in self._noted:
            note = run.take_notes()
            if note is not None:
                notes.append(note)
        self._noted = []
        self._noted_at = NEVER
        return notes


def _all_done(finishes: list[Finish]) -> bool:
    return all(finish.event is _DONE for finish in finishes)
