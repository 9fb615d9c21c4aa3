"""``run_service``: the loop that runs a periodic service.

A service is an object with a ``tick`` that returns when to call it again. The loop does what every
hand-written copy of it gets wrong once: jitter, error back-off, a time limit per tick,
interruptible sleep, the leader check and a last tick on stop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from .clock import Clock
from .entropy import Entropy
from .log import log_facts
from .wake import WakeFlag

_LOG = logging.getLogger("forge_jobs.service")

_ERROR_DELAYS_S = (0.5, 1.0, 2.0, 5.0, 10.0)
FOLLOWER_S = 5.0


class RunsOn(Enum):
    """Which processes run a service: every one, or only the leader."""

    EVERY_PROCESS = "every process"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class Next:
    """When a service's next tick is due. ``at`` is wall time of the service's clock.

    ``is_exact``: without jitter.
    """

    after_s: float | None = None
    at: int | None = None
    is_exact: bool = False

    @classmethod
    def again(cls) -> "Next":
        """At once, because there is more to do."""
        return cls(after_s=0.0)

    @classmethod
    def after(cls, seconds: float) -> "Next":
        """In ``seconds``, plus jitter."""
        return cls(after_s=seconds)

    @classmethod
    def exactly(cls, seconds: float) -> "Next":
        """In ``seconds`` without jitter, because something is due then."""
        return cls(after_s=seconds, is_exact=True)

    @classmethod
    def at_instant(cls, instant: int, *, max_wait_s: float) -> "Next":
        """At ``instant``, but at the latest after ``max_wait_s``."""
        return cls(at=instant, after_s=max_wait_s)


class PeriodicService(Protocol):
    """Periodic background work."""

    @property
    def name(self) -> str:
        """The name in logs and metrics."""
        ...

    @property
    def runs_on(self) -> RunsOn:
        """Which processes call ``tick``."""
        ...

    async def tick(self) -> Next:
        """Do one bounded step. The loop logs an exception and backs off."""
        ...


class StopFlag:
    """Stops service loops and wakes those that sleep."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._sleepers: list[WakeFlag] = []

    def set(self) -> None:
        """Stop every loop that uses this flag."""
        self._event.set()
        for sleeper in self._sleepers:
            sleeper.notify()

    def add_sleeper(self, sleeper: WakeFlag) -> None:
        """Also notify ``sleeper`` when the flag is set."""
        self._sleepers.append(sleeper)

    def is_set(self) -> bool:
        """Whether the loops should stop."""
        return self._event.is_set()

    async def wait(self, timeout_s: float) -> bool:
        """Sleep for ``timeout_s``; True as soon as the flag is set."""
        if timeout_s <= 0:
            await asyncio.sleep(0)  # noqa: TID251  -- yields to other tasks, no time passes
            return self._event.is_set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class ServiceLoop:
    """The settings that all service loops of a process share.

    ``follower_s``: how often a process that is not the leader checks whether it has become it.
    """

    clock: Clock
    entropy: Entropy
    stop: StopFlag
    is_leader: Callable[[], Awaitable[bool]]
    tick_limit_s: float = 30.0
    jitter: float = 0.1
    follower_s: float = FOLLOWER_S


async def run_service(
    service: PeriodicService,
    loop: ServiceLoop,
    *,
    last_tick: bool = False,
    wake: WakeFlag | None = None,
) -> None:
    """Call ``service.tick`` until ``loop.stop`` is set, and once more after it with ``last_tick``.

    ``wake`` ends a sleep early.
    """
    errors = 0
    if wake is not None:
        loop.stop.add_sleeper(wake)
    while not loop.stop.is_set():
        is_exact = False
        try:
            if service.runs_on is RunsOn.LEADER and not await loop.is_leader():
                delay_s = loop.follower_s
            else:
                async with asyncio.timeout(loop.tick_limit_s):
                    following = await service.tick()
                delay_s, is_exact = _delay_s(following, loop.clock.now()), following.is_exact
            errors = 0
        except Exception as error:
            delay_s = _ERROR_DELAYS_S[min(errors, len(_ERROR_DELAYS_S) - 1)]
            errors += 1
            log_facts(
                _LOG, logging.WARNING, "service tick failed",
                service=service.name, error=repr(error), retry_in=delay_s,
            )  # fmt: skip
        if delay_s > 0 and not is_exact:
            delay_s *= 1 + loop.jitter * loop.entropy.roll()
        if wake is not None and delay_s > 0:
            await wake.wait(delay_s)
        elif await loop.stop.wait(delay_s):
            break
    if last_tick:
        await _run_last_tick(service, loop)


async def _run_last_tick(service: PeriodicService, loop: ServiceLoop) -> None:
    try:
        async with asyncio.timeout(loop.tick_limit_s):
            await service.tick()
    except Exception as error:
        log_facts(
            _LOG, logging.WARNING, "last service tick failed",
            service=service.name, error=repr(error),
        )  # fmt: skip


def _delay_s(following: Next, now: int) -> float:
    waits: list[float] = []
    if following.after_s is not None:
        waits.append(following.after_s)
    if following.at is not None:
        waits.append(max(0.0, (following.at - now) / 1_000_000))
    return min(waits, default=0.0)
