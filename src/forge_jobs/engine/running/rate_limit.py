"""``ctx.rate_limit``: permits of cluster-wide token buckets, fetched in small blocks.

A process takes a block of permits at once and gives them to its handlers, so that a fast scope does
not cost a call to the store per permit. A block is small compared with the rate and the burst and
grows only while it is used up at once. What is left of it expires after a second: one process never
keeps the others from the bucket for long, and an expired permit only makes the rate lower, never
higher. After a refusal this process does not ask the store again before the time it named.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from forge_jobs.core.errors import BadOption, NotFound, Unavailable
from forge_jobs.core.limits import rate_of
from forge_jobs.core.outcome import Throttled
from forge_jobs.core.token_bucket import TokenBucket, check_bucket
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.io_thread import IoPort
from forge_jobs.kit.running_loop import has_running_loop
from forge_jobs.store.store import Store

PERMIT_TTL_S: Final = 1.0
_EAGER_S: Final = 0.25
_KNOWN_S: Final = 5.0
_NEVER_REFILLED_S: Final = 60.0
_BLOCK_OF_RATE_S: Final = 0.1
_BLOCK_OF_BURST: Final = 1 / 32
_MAX_BLOCK_OF_BURST: Final = 1 / 8

OpenStore: TypeAlias = Callable[[], Awaitable[Store]]


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A scope as code declares it: ``burst`` permits at once, refilled at ``per_s``.

    >>> RateLimit(per_s=50 / 60, burst=50).burst  # fifty a minute
    50
    """

    per_s: float
    burst: float

    @classmethod
    def of(cls, scope: str, rate: str, burst: float | None = None) -> "RateLimit":
        """From "50/m"; without ``burst`` as many at once as the rate names."""
        per_s, _ = rate_of(rate, field=f"rate limit {scope!r}: rate")
        at_once = max(1.0, float(rate.partition("/")[0])) if burst is None else float(burst)
        check_bucket(scope, capacity=at_once, refill_per_s=per_s)
        return cls(per_s, at_once)


DEFAULT_RATE_LIMIT_SCOPES: Final[Mapping[str, RateLimit]] = {
    "slack": RateLimit(50 / 60, 50.0),
    "gh": RateLimit(5_000 / 3_600, 5_000.0),
}


@dataclass(frozen=True, slots=True)
class AcquireOutcome:
    """Whether a permit was granted; if not, ``retry_after`` is how many seconds to wait for one.

    True in a condition when granted.

    >>> @forge.task(scopes=["sms"])
    ... async def text(to: str, ctx: Context) -> str:
    ...     permit = await ctx.rate_limit.try_acquire("sms")
    ...     return "sent" if permit else f"in {permit.retry_after:.0f} s"
    """

    granted: bool
    retry_after: float = 0.0

    def __bool__(self) -> bool:
        return self.granted


_GRANTED: Final = AcquireOutcome(True)


def store_of(store: Store) -> OpenStore:
    """For a store that is already open."""

    async def open_store() -> Store:
        return store

    return open_store


async def ensure_default_rate_limits(
    storage: Store, scopes: Mapping[str, RateLimit] = DEFAULT_RATE_LIMIT_SCOPES
) -> list[TokenBucket]:
    """Create the buckets that do not exist yet; what an operator set stays as it is.

    >>> made = asyncio.run(ensure_default_rate_limits(open_storage("memory://")))
    >>> sorted(bucket.scope for bucket in made)
    ['gh', 'slack']
    """
    return [
        await storage.token_buckets.ensure(scope, capacity=limit.burst, refill_per_s=limit.per_s)
        for scope, limit in scopes.items()
    ]


class _LocalPermits:
    """The permits of one scope in this process, or the time until which the store has none."""

    __slots__ = (
        "block", "closed_until", "fetched_at", "fetching", "good_until", "max_block", "permits",
    )  # fmt: skip

    def __init__(self) -> None:
        self.permits = 0
        self.good_until = -1.0
        self.closed_until = -1.0
        self.fetched_at = -1.0
        self.block = 1
        self.max_block = 1
        self.fetching: Future[None] | None = None

    def answer(self, now: float) -> AcquireOutcome | None:
        """The answer without a call to the store; None if there must be one."""
        if self.permits and now < self.good_until:
            self.permits -= 1
            return _GRANTED
        if now < self.closed_until:
            return AcquireOutcome(False, self.closed_until - now)
        return None

    def next_block(self, now: float) -> int:
        """How many permits to fetch: twice as many while they are used up at once."""
        used_up = self.permits == 0 and now - self.fetched_at < _EAGER_S
        self.block = min(self.block * 2, self.max_block) if used_up else 1
        return self.block


class RateLimiter:
    """The permits of one process. All methods may be called from any thread or coroutine; those
    that end in ``_sync`` wait, the others are awaited.

    >>> forge.rate_limit("smtp", "50/m")
    >>> @forge.task(scopes=["smtp"])
    ... async def deliver(to: str, ctx: Context) -> str:
    ...     await ctx.rate_limit.acquire("smtp")  # raises Throttled when there is no permit
    ...     return f"delivered to {to}"
    """

    def __init__(
        self,
        open_store: OpenStore,
        io: IoPort,
        *,
        declared: Mapping[str, RateLimit] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._open_store = open_store
        self._io = io
        self._declared = declared or {}
        self._mono = clock.mono
        self._guard = threading.Lock()
        self._local: dict[str, _LocalPermits] = {}
        self._known: dict[str, TokenBucket] = {}
        self._known_at: float | None = None
        self._on_this_loop = False

    async def acquire(self, scope: str) -> None:
        """Take one permit, or raise Throttled with the time to wait: the job is tried again then,
        without spending an attempt. NotFound for a scope that is not declared."""
        _require(scope, await self.try_acquire(scope))

    def acquire_sync(self, scope: str) -> None:
        """``acquire`` for plain functions."""
        _require(scope, self.try_acquire_sync(scope))

    async def try_acquire(self, scope: str) -> AcquireOutcome:
        """Take one permit if there is one."""
        while True:
            step = self._answer_or_fetch(scope)
            if isinstance(step, AcquireOutcome):
                return step
            await asyncio.shield(asyncio.wrap_future(step))

    def try_acquire_sync(self, scope: str) -> AcquireOutcome:
        """``try_acquire`` for plain functions."""
        while True:
            step = self._answer_or_fetch(scope)
            if isinstance(step, AcquireOutcome):
                return step
            self._wait(step)

    async def drain(self, scope: str) -> None:
        """Empty the bucket after a real 429: no process of the cluster gets a permit until it has
        refilled. Permits that processes already hold expire within a second."""
        await asyncio.shield(asyncio.wrap_future(self._spawn(self._drain(scope))))

    def drain_sync(self, scope: str) -> None:
        """``drain`` for plain functions."""
        self._wait(self._spawn(self._drain(scope)))

    # -- local ----------------------------------------------------------------------------------

    def _answer_or_fetch(self, scope: str) -> "AcquireOutcome | Future[None]":
        """An answer, or the fetch to wait for before asking again."""
        with self._guard:
            local = self._local.get(scope)
            if local is None:
                local = self._local[scope] = _LocalPermits()
            answer = local.answer(self._mono())
            if answer is not None:
                return answer
            if local.fetching is None or local.fetching.done():
                local.fetching = self._spawn(self._fetch(scope, local))
            return local.fetching

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "Future[None]":
        """Run it on the I/O port; threads and any event loop can wait for the future."""
        completion: Future[None] = Future()

        async def run() -> None:
            try:
                await work
            except Exception as error:
                completion.set_exception(error)
            else:
                completion.set_result(None)

        def finished(_: object) -> None:
            work.close()
            if not completion.done():
                completion.set_exception(Unavailable("the worker stops: no permit can be fetched"))

        try:
            spawned = self._io.spawn(run)
        except BaseException:
            work.close()
            raise
        self._on_this_loop = isinstance(spawned, asyncio.Task)
        spawned.add_done_callback(finished)
        return completion

    def _wait(self, completion: "Future[None]") -> None:
        if self._on_this_loop and not completion.done() and has_running_loop():
            raise BadOption(
                "a coroutine would wait for itself: use await ctx.rate_limit.acquire(…)"
            )
        completion.result()

    # -- store ----------------------------------------------------------------------------------

    async def _fetch(self, scope: str, local: _LocalPermits) -> None:
        store = await self._open_store()
        bucket = await self._bucket(store, scope)
        with self._guard:
            local.max_block = _max_block(bucket)
            count = local.next_block(self._mono())
        grant = await store.token_buckets.take(scope, count)
        with self._guard:
            now = self._mono()
            local.permits = grant.granted
            local.fetched_at, local.good_until = now, now + PERMIT_TTL_S
            if grant.granted < count:
                wait_s = _NEVER_REFILLED_S if grant.retry_s is None else grant.retry_s
                local.closed_until = now + wait_s

    async def _drain(self, scope: str) -> None:
        store = await self._open_store()
        await self._bucket(store, scope)
        await store.token_buckets.drain(scope)
        with self._guard:
            local = self._local.setdefault(scope, _LocalPermits())
            local.permits = 0
            local.closed_until = -1.0

    async def _bucket(self, store: Store, scope: str) -> TokenBucket:
        """The bucket of a scope, read again every few seconds, since operators change it. A scope
        that the code declares is created by its first use."""
        now = self._mono()
        stale = self._known_at is None or not 0 <= now - self._known_at < _KNOWN_S
        if stale or scope not in self._known:
            self._known = {one.scope: one for one in await store.token_buckets.all()}
            self._known_at = now
        if scope not in self._known:
            declared = self._declared.get(scope)
            if declared is None:
                raise self._unknown(scope)
            [made] = await ensure_default_rate_limits(store, {scope: declared})
            self._known[scope] = made
        return self._known[scope]

    def _unknown(self, scope: str) -> NotFound:
        known = ", ".join(sorted({*self._known, *self._declared})) or "none"
        return NotFound(
            f"rate limit scope {scope!r} is not declared (known: {known}): declare it with "
            f'forge.rate_limit({scope!r}, "50/m") or `forge limits set {scope} 50/m`'
        )


def _max_block(bucket: TokenBucket) -> int:
    block = max(bucket.refill_per_s * _BLOCK_OF_RATE_S, bucket.capacity * _BLOCK_OF_BURST)
    return max(1, int(min(block, bucket.capacity * _MAX_BLOCK_OF_BURST)))


def _require(scope: str, answer: AcquireOutcome) -> None:
    if not answer.granted:
        raise Throttled(retry_after=answer.retry_after, scope=scope)
