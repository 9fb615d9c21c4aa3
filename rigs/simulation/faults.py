"""The line between an actor and the store, and everything that can go wrong on it.

A call travels, takes effect at some instant of virtual time, and its answer travels back. On the
way it may be delayed, refused before the effect (``Unavailable``), lost before the effect, lost
after it, or given up before a late effect (all three ``Unknown`` to the caller: it cannot tell them
apart). A severed line carries nothing any more; what was already under way when it was severed may
still arrive, as packets do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from forge_jobs.core.errors import Unavailable, Unknown
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.store.jobs import Exchange, Exchanged, JobStore
from forge_jobs.store.limits import Limits
from forge_jobs.store.metrics import MetricsStore
from forge_jobs.store.processes import ProcessStore
from forge_jobs.store.queues import Queues
from forge_jobs.store.schedules import CronSchedules
from forge_jobs.store.settings import SettingStore
from forge_jobs.store.store import Capabilities, Maintenance, Notify, Store, Subscription
from forge_jobs.store.token_buckets import TokenBuckets
from rigs.simulation.dice import Dice
from rigs.simulation.effects import Recorder
from rigs.simulation.history import Answered, Called, Heard, History
from rigs.simulation.loop import Realm, VirtualLoop

Effect = Callable[[str], Coroutine[Any, Any, Any]]

MAX_LATE_S = 10.0
MAX_SLOW_S = 25.0


@dataclass(frozen=True, slots=True)
class Weather:
    """How likely each mishap is, per call. Delays are in seconds, mostly short."""

    unavailable: float = 0.0
    lost_request: float = 0.0
    lost_reply: float = 0.0
    late: float = 0.0
    slow: float = 0.0
    delay_most_s: float = 0.002
    hint_lost: float = 0.0


CALM = Weather()


class _Fate(Enum):
    FINE = "fine"
    UNAVAILABLE = "refused"
    LOST_REQUEST = "request lost"
    LOST_REPLY = "reply lost"
    LATE = "given up, takes effect later"
    SLOW = "answered after a long time"


@dataclass(slots=True, eq=False)
class _Call:
    op: str
    effect: Effect
    fate: _Fate
    answer: "asyncio.Future[Any]"
    dropped: bool = False


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
        self._under_way: list[_Call] = []

    def sever(self) -> None:
        """The actor is gone: nothing new is sent; of what is under way, some still arrives."""
        self._severed = True
        for call in self._under_way:
            call.dropped = self._dice.chance(0.5)

    async def call(self, op: str, effect: Effect) -> Any:
        """Carry one call to the store and its answer back."""
        if self._severed:
            raise Unavailable(f"{op}: the line is severed")
        self._calls += 1
        number = self._calls
        self._history.add(Called(self._now(), self.who, number, op))
        call = _Call(op, effect, self._fate(), self._loop.create_future())
        self._send(call)
        heard, note = Heard.OK, ""
        try:
            return await call.answer
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
            self._history.add(Answered(self._now(), self.who, number, op, heard, note))

    def _send(self, call: _Call) -> None:
        if call.fate is _Fate.UNAVAILABLE:
            self._later(self._give_up, call, Unavailable(f"{call.op}: refused by the simulation"))
        elif call.fate is _Fate.LOST_REQUEST:
            self._later(self._give_up, call, Unknown(f"{call.op}: no answer"))
        else:
            self._under_way.append(call)
            if call.fate is _Fate.LATE:
                self._later(self._give_up, call, Unknown(f"{call.op}: no answer"))
                self._later(self._arrive, call, extra_s=self._dice.between(0, MAX_LATE_S))
            else:
                self._later(self._arrive, call)

    def _arrive(self, call: _Call) -> None:
        self._under_way.remove(call)
        if call.dropped:
            return
        try:
            result = _at_once(call.effect(self.who))
        except Exception as error:
            self._later(self._give_up, call, error)
            return
        if call.fate is _Fate.LOST_REPLY:
            self._later(self._give_up, call, Unknown(f"{call.op}: no answer"))
        else:
            slow = call.fate is _Fate.SLOW
            extra_s = self._dice.between(0, MAX_SLOW_S) if slow else 0.0
            self._later(self._answer, call, result, extra_s=extra_s)

    def _answer(self, call: _Call, result: Any) -> None:
        if not call.answer.done():
            call.answer.set_result(result)

    def _give_up(self, call: _Call, error: Exception) -> None:
        if not call.answer.done():
            call.answer.set_exception(error)
            # The caller may be frozen for ever; asyncio must not complain that nobody looked.
            call.answer.exception()

    def _later(self, act: Callable[..., None], *args: Any, extra_s: float = 0.0) -> None:
        delay_s = self._dice.skewed(extra_s, extra_s + self.weather.delay_most_s)
        self._loop.call_later(delay_s, act, *args, context=self._wire.shared)

    def ring_through(self, realm: Realm, notify: Notify) -> Notify:
        """A wake-up that travels like everything else: late, sometimes lost, never to the dead."""

        def hint() -> None:
            if self._severed or self.cut or self._dice.chance(self.weather.hint_lost):
                return
            delay_s = self._dice.skewed(0.0, self.weather.delay_most_s)
            self._loop.call_later(delay_s, notify, context=realm.context())

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
            (weather.late, _Fate.LATE),
            (weather.slow, _Fate.SLOW),
        ):
            if roll < likelihood:
                return fate
            roll -= likelihood
        return _Fate.FINE

    def _now(self) -> int:
        return round(self._loop.time() * 1e6)


def _at_once(effect: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that does not wait: an effect happens at one instant."""
    try:
        effect.send(None)
    except StopIteration as end:
        return end.value
    effect.close()
    raise RuntimeError("the simulated store waited for something; its effects must be instant")


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
    """The Store contract for one actor; ``realm`` is where its wake-ups ring.

    ``apart``: it says of itself that a server does the work, so that engines overlap.
    """

    def __init__(
        self, target: Store, line: Line, realm: Realm, recorder: Recorder, *, apart: bool = False
    ) -> None:
        self._target = target
        self._line = line
        self._realm = realm

        def far(name: str, near: object) -> Any:
            return _Contract(line, name, near, recorder)

        self.jobs: JobStore = far("jobs", target.jobs)
        self.processes: ProcessStore = far("processes", target.processes)
        self.queues: Queues = far("queues", target.queues)
        self.schedules: CronSchedules = far("schedules", target.schedules)
        self.token_buckets: TokenBuckets = far("token_buckets", target.token_buckets)
        self.metrics: MetricsStore = far("ledger", target.metrics)
        self.limits: Limits = far("limits", target.limits)
        self.settings: SettingStore = far("settings", target.settings)
        # A synchronous call could not travel in virtual time.
        self.capabilities: Capabilities = msgspec.structs.replace(
            target.capabilities, sync_calls=False, transactions=(), server_side=apart
        )

    @property
    def maintenance(self) -> Maintenance:
        return self._target.maintenance

    @property
    def tag(self) -> int:
        return self._target.tag

    async def open(self, *, migrate: bool = True) -> None:
        """The world opened the store already."""

    async def close(self) -> None:
        """Other actors still use the store."""

    async def now(self) -> Instant:
        return await self._target.now()

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise RuntimeError("a synchronous call cannot be simulated")

    def exchange_sync(self, request: Exchange) -> Exchanged:
        raise RuntimeError("a synchronous call cannot be simulated")

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise RuntimeError("a user's transaction cannot be simulated")

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise RuntimeError("a user's transaction cannot be simulated")

    async def subscribe(self, queues: Sequence[str], notify: Notify) -> Subscription:
        through = self._line.ring_through(self._realm, notify)
        return await self._target.subscribe(queues, through)

    def after_fork(self) -> None:
        raise RuntimeError("nothing forks in a simulation")
