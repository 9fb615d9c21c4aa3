"""Handlers in warm child processes: ``cpu=True`` tasks, and suspects that run alone.

Children are started when a job needs one and none is free, so that there are never more than jobs
running at once. A child runs one job at a time, is let go after ``child_idle_s`` without work or
``child_jobs_most`` jobs, and dies with its worker. Stopping a job means killing its child.
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

from forge_jobs.config import EngineSettings
from forge_jobs.core.outcome import Failed, Stopped
from forge_jobs.engine.run import Ended, Ending, Run
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy

from .child_seat import ChildSeat, DiedBefore

_LOG = logging.getLogger("forge_jobs.child")
_SEATS_TRIED: Final = 3


@dataclass(slots=True)
class _Place:
    """Where a run is at work: its task, and its child once there is one."""

    task: "asyncio.Task[None]"
    seat: ChildSeat | None = None


class ChildExecutor:
    """Runs handlers in child processes; see ``executors.ChildRunner``."""

    def __init__(
        self, ended: Ended, *, clock: Clock, entropy: Entropy, settings: EngineSettings
    ) -> None:
        self._ended = ended
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._places: dict[Run, _Place] = {}
        self._idle: dict[ChildSeat, asyncio.TimerHandle] = {}
        self._seats: dict[ChildSeat, None] = {}
        self._chores: dict[asyncio.Task[None], None] = {}
        self._closed = False

    def submit(self, run: Run) -> None:
        """Run this handler in a free child, or in a new one."""
        self._place(run, isolated=False)

    def run_isolated(self, run: Run) -> None:
        """Run this handler alone in a child of its own."""
        self._place(run, isolated=True)

    def interrupt(self, run: Run) -> None:
        """Kill the child of a run that was told to end."""
        place = self._places.get(run)
        if place is not None and place.seat is not None:
            self._spawn(place.seat.halt(run))

    async def close(self) -> None:
        """Kill all children; nothing more is reported."""
        self._closed = True
        tasks = [place.task for place in self._places.values()] + list(self._chores)
        for task in tasks:
            task.cancel()
        for timer in self._idle.values():
            timer.cancel()
        self._idle.clear()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(seat.kill() for seat in list(self._seats)))

    # --------------------------------------------------------------------------------- one run

    def _place(self, run: Run, *, isolated: bool) -> None:
        task = self._loop.create_task(self._work(run, isolated=isolated))
        self._places[run] = _Place(task)

    async def _work(self, run: Run, *, isolated: bool) -> None:
        try:
            ending = await self._ending(run, isolated=isolated)
        except Exception as error:
            _LOG.exception("a child executor failed")
            ending = Ending(Failed(f"the child executor failed: {type(error).__name__}: {error}"))
        self._places.pop(run, None)
        if not self._closed:
            self._ended(run, ending)

    async def _ending(self, run: Run, *, isolated: bool) -> Ending:
        if run.handler.child is None:
            return Ending(Failed(f"kind {run.job.kind!r} cannot run in a process of its own"))
        why = ""
        for _ in range(_SEATS_TRIED):
            try:
                seat = self._free_seat() if not isolated else None
                if seat is None:
                    seat = await self._new_seat()
                if run.stop_reason is not None:
                    self._give_back(seat, isolated=isolated)
                    return Ending(Stopped(run.stop_reason))
                self._places[run].seat = seat
                ending = await seat.work(run)
            except DiedBefore as died:
                why = str(died)
                continue
            self._give_back(seat, isolated=isolated)
            return ending
        return Ending(Failed(why))

    # ----------------------------------------------------------------------------------- children

    def _free_seat(self) -> ChildSeat | None:
        # The one that was used last is the warmest; the others may grow old and be let go.
        while self._idle:
            seat, timer = self._idle.popitem()
            timer.cancel()
            if seat.alive:
                return seat
        return None

    async def _new_seat(self) -> ChildSeat:
        seat = ChildSeat()
        self._seats[seat] = None
        try:
            await seat.start(on_exit=lambda: self._forget(seat))
        except DiedBefore:
            self._forget(seat)
            raise
        return seat

    def _give_back(self, seat: ChildSeat, *, isolated: bool) -> None:
        if not seat.alive or self._closed:
            return
        if isolated or seat.jobs >= self._settings.child_jobs_most:
            self._spawn(seat.dismiss())
            return
        idle_s = self._settings.child_idle_s
        self._idle[seat] = self._loop.call_later(idle_s, self._trim, seat)

    def _trim(self, seat: ChildSeat) -> None:
        if self._idle.pop(seat, None) is not None:
            self._spawn(seat.dismiss())

    def _forget(self, seat: ChildSeat) -> None:
        self._seats.pop(seat, None)
        timer = self._idle.pop(seat, None)
        if timer is not None:
            timer.cancel()

    def _spawn(self, chore: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(chore)
        self._chores[task] = None
        task.add_done_callback(lambda done: self._chores.pop(done, None))
