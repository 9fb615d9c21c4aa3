"""The line between an actor and the store, and everything that can go wrong on it.

A call travels, takes effect at some instant of virtual time, and its answer travels back. On the
way it may be delayed, refused before the effect (``Unavailable``), lost before the effect, or lost
after it (both ``Unknown`` to the caller: it cannot tell them apart). A severed line carries nothing
any more; what was already under way when it was cut may still arrive, as packets do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from forge_jobs.core.errors import Unavailable, Unknown
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.store.bundle import Capabilities, Ring, Store, Subscription, Upkeep
from forge_jobs.store.jobs import JobStore
from forge_jobs.store.ledger import LedgerStore
from forge_jobs.store.processes import ProcessStore
from forge_jobs.store.queues import QueueStore
from forge_jobs.store.schedules import ScheduleStore

from .clocks import pass_time
from .dice import Dice
from .effects import Recorder
from .history import Answered, Called, Heard, History
from .loop import Realm, VirtualLoop

Effect = Callable[[str], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Weather:
    """How likely each mishap is, per call. Delays are in seconds, mostly short."""

    unavailable: float = 0.0
    lost_request: float = 0.0
    lost_reply: float = 0.0
    delay_most_s: float = 0.002
    hint_lost: float = 0.0


CALM = Weather()


class _Fate(Enum):
    FINE = "fine"
    UNAVAILABLE = "unavailable"
    LOST_REQUEST = "request lost"
    LOST_REPLY = "reply lost"


class Line:
    """One actor's connection to the store."""

    def __init__(
        self, who: str, *, loop: VirtualLoop, wire: Realm, history: History, dice: Dice
    ) -> None:
        self.who = who
        self.weather = CALM
        self.cut = False
        self._severed = False
        self._loop = loop
        self._wire = wire
        self._history = history
        self._dice = dice
        self._calls = 0
        self._dropped: dict[int, bool] = {}

    def sever(self) -> None:
        """The actor is gone: nothing new is sent; of what is under way, some still arrives."""
        self._severed = True
        for call in self._dropped:
            self._dropped[call] = self._dice.chance(0.5)

    async def call(self, op: str, effect: Effect) -> Any:
        """Carry one call to the store and its answer back."""
        self._calls += 1
        call = self._calls
        if self._severed:
            raise Unavailable(f"{op}: the line is severed")
        self._history.add(Called(self._now(), self.who, call, op))
        fate = self._fate()
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._dropped[call] = False
        self._loop.create_task(
            self._carry(call, op, effect, fate, answer), context=self._wire.context()
        )
        heard, note = Heard.OK, ""
        try:
            return await answer
        except Unknown as error:
            heard, note = Heard.UNKNOWN, str(error)
            raise
        except asyncio.CancelledError:
            heard, note = Heard.UNKNOWN, "the caller gave up"
            raise
        except Exception as error:
            heard, note = Heard.FAIL, repr(error)
            raise
        finally:
            self._history.add(Answered(self._now(), self.who, call, op, heard, note))

    async def _carry(
        self, call: int, op: str, effect: Effect, fate: _Fate, answer: "asyncio.Future[Any]"
    ) -> None:
        try:
            await self._travel()
            if fate is _Fate.UNAVAILABLE:
                return _settle(answer, Unavailable(f"{op}: refused by the simulation"))
            if fate is _Fate.LOST_REQUEST or self._dropped[call]:
                await self._travel()
                return _settle(answer, Unknown(f"{op}: no answer"))
            try:
                result: Any = await effect(self.who)
            except Exception as error:
                await self._travel()
                return _settle(answer, error)
            await self._travel()
            if fate is _Fate.LOST_REPLY:
                return _settle(answer, Unknown(f"{op}: no answer"))
            if not answer.done():
                answer.set_result(result)
        finally:
            del self._dropped[call]

    def ring_through(self, realm: Realm, ring: Ring) -> Ring:
        """A wake-up that travels like everything else: late, sometimes lost, never to the dead."""

        def hint() -> None:
            if self._severed or self.cut or self._dice.chance(self.weather.hint_lost):
                return
            delay_s = self._dice.skewed(0.0, self.weather.delay_most_s)
            self._loop.call_later(delay_s, ring, context=realm.context())

        return hint

    def _fate(self) -> _Fate:
        weather = self.weather
        if self.cut:
            return self._dice.pick((_Fate.UNAVAILABLE, _Fate.LOST_REQUEST))
        roll = self._dice.roll()
        for likelihood, fate in (
            (weather.unavailable, _Fate.UNAVAILABLE),
            (weather.lost_request, _Fate.LOST_REQUEST),
            (weather.lost_reply, _Fate.LOST_REPLY),
        ):
            if roll < likelihood:
                return fate
            roll -= likelihood
        return _Fate.FINE

    async def _travel(self) -> None:
        await pass_time(self._dice.skewed(0.0, self.weather.delay_most_s))

    def _now(self) -> int:
        return round(self._loop.time() * 1e6)


def _settle(answer: "asyncio.Future[Any]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
        # The caller may be frozen for ever; asyncio must not complain that nobody looked.
        answer.exception()


class _Contract:
    """One of the store's contracts at the far end of a line."""

    def __init__(self, line: Line, name: str, target: object, recorder: Recorder) -> None:
        self._line = line
        self._name = name
        self._target = target
        self._recorder = recorder

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        op = f"{self._name}.{method}"
        act = getattr(self._target, method)

        async def call(*args: Any, **options: Any) -> Any:
            async def effect(who: str) -> Any:
                self._recorder.acting(who)
                result = await act(*args, **options)
                self._recorder.done(who, op, args, options, result)
                return result

            return await self._line.call(op, effect)

        return call


class FaultyStore:
    """The Store contract for one actor; ``realm`` is where its wake-ups ring."""

    def __init__(self, target: Store, line: Line, realm: Realm, recorder: Recorder) -> None:
        self._target = target
        self._line = line
        self._realm = realm

        def far(name: str, near: object) -> Any:
            return _Contract(line, name, near, recorder)

        self.jobs: JobStore = far("jobs", target.jobs)
        self.processes: ProcessStore = far("processes", target.processes)
        self.queues: QueueStore = far("queues", target.queues)
        self.schedules: ScheduleStore = far("schedules", target.schedules)
        self.ledger: LedgerStore = far("ledger", target.ledger)
        # A synchronous call could not travel in virtual time.
        self.capabilities: Capabilities = msgspec.structs.replace(
            target.capabilities, sync_enqueue=False, transactions=()
        )

    @property
    def upkeep(self) -> Upkeep:
        return self._target.upkeep

    @property
    def tag(self) -> int:
        return self._target.tag

    async def open(self, *, migrate: bool = True) -> None:
        """The world opened the store already."""

    async def close(self) -> None:
        """Other actors still use the store."""

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise RuntimeError("a synchronous call cannot be simulated")

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise RuntimeError("a user's transaction cannot be simulated")

    async def subscribe(self, queues: Sequence[str], ring: Ring) -> Subscription:
        through = self._line.ring_through(self._realm, ring)
        return await self._target.subscribe(queues, through)

    def after_fork(self) -> None:
        raise RuntimeError("nothing forks in a simulation")
