"""The connection between an actor and the store, with injected faults.

A call takes effect at some instant of virtual time, and its reply arrives later. It may be delayed,
refused before the effect (``Unavailable``), lost before the effect, lost after it, or time out
before a late effect (all three are ``Unknown`` to the caller, which cannot distinguish them). A
closed connection sends nothing; calls in flight when it was closed may still arrive, like packets.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from forge_jobs.core.errors import Unavailable, Unknown
from forge_jobs.core.events import NewEvent, SentEvent
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.steps import StepWrite
from forge_jobs.store.breakdowns import BreakdownStore
from forge_jobs.store.error_groups import ErrorGroupStore
from forge_jobs.store.events import EventStore
from forge_jobs.store.jobs import Exchange, Exchanged, JobStore
from forge_jobs.store.limits import Limits
from forge_jobs.store.metrics import MetricsStore
from forge_jobs.store.processes import ProcessStore
from forge_jobs.store.queues import Queues
from forge_jobs.store.schedules import CronSchedules
from forge_jobs.store.settings import SettingStore
from forge_jobs.store.steps import StepStore
from forge_jobs.store.store import Capabilities, Maintenance, Notify, Store, Subscription
from forge_jobs.store.token_buckets import TokenBuckets
from rigs.simulation.dice import Dice
from rigs.simulation.effects import Recorder
from rigs.simulation.history import Answered, Called, CallResult, History
from rigs.simulation.loop import Realm, VirtualLoop
from rigs.simulation.user_transactions import SimTransaction

Effect = Callable[[str], Coroutine[Any, Any, Any]]

MAX_LATE_S = 10.0
MAX_SLOW_S = 25.0


@dataclass(frozen=True, slots=True)
class FailureRates:
    """The probability of each fault per call. Delays are in seconds, mostly short."""

    unavailable: float = 0.0
    lost_request: float = 0.0
    lost_reply: float = 0.0
    late: float = 0.0
    slow: float = 0.0
    max_delay_s: float = 0.002
    notify_lost: float = 0.0


NO_FAULTS = FailureRates()


class _CallFailure(Enum):
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
    fault: _CallFailure
    answer: "asyncio.Future[Any]"
    dropped: bool = False


class FaultyConnection:
    """One actor's connection to the store."""

    def __init__(
        self, who: str, *, loop: VirtualLoop, wire: Realm, history: History, dice: Dice
    ) -> None:
        self.who = who
        self.rates = NO_FAULTS
        self.cut = False
        self._disconnected = False
        self._loop = loop
        self._wire = wire
        self._history = history
        self._dice = dice
        self._calls = 0
        self._under_way: list[_Call] = []

    def disconnect(self) -> None:
        """The actor has ended: no new calls; some of the calls in flight still arrive."""
        self._disconnected = True
        for call in self._under_way:
            call.dropped = self._dice.chance(0.5)

    async def call(self, op: str, effect: Effect) -> Any:
        """Deliver one call to the store and return its reply."""
        if self._disconnected:
            raise Unavailable(f"{op}: the connection is closed")
        self._calls += 1
        number = self._calls
        self._history.add(Called(self._now(), self.who, number, op))
        call = _Call(op, effect, self._pick_fault(), self._loop.create_future())
        self._send(call)
        result_kind, note = CallResult.OK, ""
        try:
            return await call.answer
        except Unknown as error:
            result_kind, note = CallResult.UNKNOWN, str(error)
            raise
        except asyncio.CancelledError:
            result_kind, note = CallResult.UNKNOWN, "the caller gave up"
            raise
        except Exception as error:
            result_kind, note = CallResult.FAIL, repr(error)
            raise
        finally:
            self._history.add(Answered(self._now(), self.who, number, op, result_kind, note))

    def _send(self, call: _Call) -> None:
        if call.fault is _CallFailure.UNAVAILABLE:
            self._later(self._give_up, call, Unavailable(f"{call.op}: refused by the simulation"))
        elif call.fault is _CallFailure.LOST_REQUEST:
            self._later(self._give_up, call, Unknown(f"{call.op}: no answer"))
        else:
            self._under_way.append(call)
            if call.fault is _CallFailure.LATE:
                self._later(self._give_up, call, Unknown(f"{call.op}: no answer"))
                self._later(self._arrive, call, extra_s=self._dice.between(0, MAX_LATE_S))
            else:
                self._later(self._arrive, call)

    def _arrive(self, call: _Call) -> None:
        self._under_way.remove(call)
        if call.dropped:
            return
        try:
            result = _run_instantly(call.effect(self.who))
        except Exception as error:
            self._later(self._give_up, call, error)
            return
        if call.fault is _CallFailure.LOST_REPLY:
            self._later(self._give_up, call, Unknown(f"{call.op}: no answer"))
        else:
            slow = call.fault is _CallFailure.SLOW
            extra_s = self._dice.between(0, MAX_SLOW_S) if slow else 0.0
            self._later(self._answer, call, result, extra_s=extra_s)

    def _answer(self, call: _Call, result: Any) -> None:
        if not call.answer.done():
            call.answer.set_result(result)

    def _give_up(self, call: _Call, error: Exception) -> None:
        if not call.answer.done():
            call.answer.set_exception(error)
            # The caller may be frozen for ever; asyncio must not log the error as never retrieved.
            call.answer.exception()

    def _later(self, operation: Callable[..., None], *args: Any, extra_s: float = 0.0) -> None:
        delay_s = self._dice.skewed(extra_s, extra_s + self.rates.max_delay_s)
        self._loop.call_later(delay_s, operation, *args, context=self._wire.shared)

    def delayed_notify(self, realm: Realm, notify: Notify) -> Notify:
        """A notification that is delayed, sometimes lost, and never reaches an ended actor."""

        def notify_later() -> None:
            if self._disconnected or self.cut or self._dice.chance(self.rates.notify_lost):
                return
            delay_s = self._dice.skewed(0.0, self.rates.max_delay_s)
            self._loop.call_later(delay_s, notify, context=realm.context())

        return notify_later

    def _pick_fault(self) -> _CallFailure:
        rates = self.rates
        if self.cut:
            return self._dice.pick((_CallFailure.UNAVAILABLE, _CallFailure.LOST_REQUEST))
        roll = self._dice.roll()
        for likelihood, fault in (
            (rates.unavailable, _CallFailure.UNAVAILABLE),
            (rates.lost_request, _CallFailure.LOST_REQUEST),
            (rates.lost_reply, _CallFailure.LOST_REPLY),
            (rates.late, _CallFailure.LATE),
            (rates.slow, _CallFailure.SLOW),
        ):
            if roll < likelihood:
                return fault
            roll -= likelihood
        return _CallFailure.FINE

    def _now(self) -> int:
        return round(self._loop.time() * 1e6)


def _run_instantly(effect: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never suspends: an effect happens at one instant."""
    try:
        effect.send(None)
    except StopIteration as end:
        return end.value
    effect.close()
    raise RuntimeError("the simulated store waited for something; its effects must be instant")


class _Contract:
    """A proxy for one of the store's contracts behind a connection."""

    def __init__(
        self, connection: FaultyConnection, name: str, target: object, recorder: Recorder
    ) -> None:
        self._connection = connection
        self._name = name
        self._target = target
        self._recorder = recorder

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        op = f"{self._name}.{method}"
        operation = getattr(self._target, method)

        async def call(*args: Any, **options: Any) -> Any:
            async def effect(who: str) -> Any:
                self._recorder.set_actor(who)
                result = await operation(*args, **options)
                self._recorder.done(who, op, args, options, result)
                return result

            return await self._connection.call(op, effect)

        # Kept, so that the next look-up finds it.
        setattr(self, method, call)
        return call


class FaultyStore:
    """The Store contract for one actor; ``realm`` receives its notifications.

    ``server_side``: the capability of that name, with which engines overlap their calls.
    """

    def __init__(
        self,
        target: Store,
        connection: FaultyConnection,
        realm: Realm,
        recorder: Recorder,
        *,
        server_side: bool = False,
    ) -> None:
        self._target = target
        self._connection = connection
        self._realm = realm
        self._recorder = recorder

        def proxy(name: str, target_part: object) -> Any:
            return _Contract(connection, name, target_part, recorder)

        self.jobs: JobStore = proxy("jobs", target.jobs)
        self.processes: ProcessStore = proxy("processes", target.processes)
        self.queues: Queues = proxy("queues", target.queues)
        self.schedules: CronSchedules = proxy("schedules", target.schedules)
        self.token_buckets: TokenBuckets = proxy("token_buckets", target.token_buckets)
        self.metrics: MetricsStore = proxy("ledger", target.metrics)
        self.limits: Limits = proxy("limits", target.limits)
        self.settings: SettingStore = proxy("settings", target.settings)
        self.steps: StepStore = proxy("steps", target.steps)
        self.events: EventStore = proxy("events", target.events)
        self.error_groups: ErrorGroupStore = proxy("error_groups", target.error_groups)
        self.breakdowns: BreakdownStore = proxy("breakdowns", target.breakdowns)
        # A synchronous call cannot take virtual time.
        self.capabilities: Capabilities = msgspec.structs.replace(
            target.capabilities, sync_calls=False, transactions=(), server_side=server_side
        )

    @property
    def maintenance(self) -> Maintenance:
        return self._target.maintenance

    @property
    def tag(self) -> int:
        return self._target.tag

    async def open(self, *, migrate: bool = True) -> None:
        """The simulation has opened the store already."""

    async def close(self) -> None:
        """Other actors still use the store."""

    async def now(self) -> Instant:
        return await self._target.now()

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise RuntimeError("a synchronous call cannot be simulated")

    def try_enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued] | None:
        return None

    def exchange_sync(self, request: Exchange) -> Exchanged:
        raise RuntimeError("a synchronous call cannot be simulated")

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise RuntimeError("a user's transaction cannot be simulated")

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise RuntimeError("a user's transaction cannot be simulated")

    def send_in(self, transaction: object, events: Sequence[NewEvent]) -> list[SentEvent]:
        raise RuntimeError("a user's transaction cannot be simulated")

    async def asend_in(self, transaction: object, events: Sequence[NewEvent]) -> list[SentEvent]:
        raise RuntimeError("a user's transaction cannot be simulated")

    def store_step_in(self, transaction: object, owner: int, step: StepWrite) -> None:
        raise RuntimeError("a user's transaction cannot be simulated")

    async def astore_step_in(self, transaction: object, owner: int, step: StepWrite) -> None:
        """Store a step in a transaction of a handler; its commit is a call of its own."""
        assert isinstance(transaction, SimTransaction)

        async def insert(who: str) -> None:
            self._recorder.set_actor(who)
            await self._target.astore_step_in(transaction, owner, step)

        await self._connection.call("user.insert", insert)
        transaction.send = self._commit

    async def _commit(self, commit: Callable[[], None]) -> None:
        async def effect(who: str) -> None:
            self._recorder.set_actor(who)
            commit()

        await self._connection.call("user.commit", effect)

    async def subscribe(self, queues: Sequence[str], notify: Notify) -> Subscription:
        through = self._connection.delayed_notify(self._realm, notify)
        return await self._target.subscribe(queues, through)

    def after_fork(self) -> None:
        raise RuntimeError("nothing forks in a simulation")
