"""``WorkerPoolHandler``: jobs for warm programs in any language, one job at a time each."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Unpack

from forge_jobs.core.errors import BadOption
from forge_jobs.core.names import kind_name
from forge_jobs.core.outcome import Failed, JobOutcome
from forge_jobs.engine.running.context import Context
from forge_jobs.kit.children.line_child import LineChild
from forge_jobs.kit.children.memory import resident_bytes
from forge_jobs.kit.children.parent_link import BadLine
from forge_jobs.kit.children.pool import ChildPool
from forge_jobs.kit.children.process import ChildGone
from forge_jobs.kit.children.warm_child import ChildUnavailable, WarmChild
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy

from .worker_pool_config import PoolOptions, WorkerPoolConfig
from .worker_pool_wire import OutOfStep, Request, encode, heard, is_ready

_LOG = logging.getLogger("forge_jobs.child")
_MAX_PRINTED: Final = 1_000
_CHILDREN_TRIED: Final = 3


class WorkerPoolHandler:
    """Gives each job to a free child of its pool; see ``docs/handlers.md`` for the protocol.

    Every worker process has a pool of its own. Children are started when jobs need them and then
    kept.
    """

    # A child cannot take the worker down: a suspect of its kind needs no process of its own.
    apart: bool = True

    def __init__(
        self,
        config: WorkerPoolConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        **options: Unpack[PoolOptions],
    ) -> None:
        if config is not None and options:
            raise BadOption("WorkerPoolHandler takes a WorkerPoolConfig, or its fields by name")
        if config is None and "argv" not in options:
            raise BadOption("WorkerPoolHandler needs argv=, the program of its children")
        self.config = config or WorkerPoolConfig(**options)
        self.kind = kind_name(self.config.kind)
        self._clock = clock
        self._entropy = entropy

    async def run(self, ctx: Context, payload: Any) -> JobOutcome:
        """One attempt: wait for a free child, ask it, take its answer."""
        pool = ctx.shared(self, self._new_pool)
        limit_s = self.config.timeout_secs
        try:
            async with asyncio.timeout(limit_s):
                return await self._asked(ctx, payload, pool)
        except TimeoutError:
            return Failed(f"timed out after {limit_s:g} s")

    async def _asked(self, ctx: Context, payload: Any, pool: "ChildPool[_PoolChild]") -> JobOutcome:
        why = ""
        for _ in range(_CHILDREN_TRIED):
            try:
                seat = await pool.acquire()
            except ChildUnavailable as trouble:
                return Failed(f"{self.kind}: {trouble}")
            try:
                return await self._asked_of(ctx, payload, pool, seat)
            except ChildUnavailable as trouble:
                # It died, or spoke, while it was idle: that was not this job's doing.
                why = str(trouble)
            finally:
                pool.release(seat)
        return Failed(f"{self.kind}: {why}")

    async def _asked_of(
        self, ctx: Context, payload: Any, pool: "ChildPool[_PoolChild]", seat: "_PoolChild"
    ) -> JobOutcome:
        try:
            outcome = await seat.ask(ctx, payload)
        except ChildGone as ended:
            pool.record_failure()
            return Failed(f"{self.kind}: the child died before it answered: {ended}")
        except (OutOfStep, BadLine) as fault:
            await seat.kill()
            pool.record_failure()
            return Failed(f"{self.kind}: the child was killed: {fault}")
        except BaseException:
            # Cancelled, or out of time: the child is still at it, and cannot be told otherwise.
            await seat.terminate(self.config.grace_secs)
            raise
        pool.record_success()
        return outcome

    def _new_pool(self) -> "ChildPool[_PoolChild]":
        return ChildPool(
            lambda: _PoolChild(self.config),
            _PoolChild.start_program,
            size=self.config.size,
            is_worn_out=self._is_worn_out,
            idle_s=None,
            clock=self._clock,
            entropy=self._entropy,
        )

    def _is_worn_out(self, seat: "_PoolChild") -> bool:
        if seat.jobs >= self.config.max_jobs:
            return True
        most_mb = self.config.max_memory_mb
        if most_mb is None:
            return False
        used = resident_bytes(seat.pid)
        return used is not None and used > most_mb << 20


class _PoolChild(WarmChild):
    """A seat whose child is any program that speaks the protocol."""

    def __init__(self, config: WorkerPoolConfig) -> None:
        super().__init__(self._print)
        self._config = config
        self._ctx: Context | None = None
        self._printed = 0

    async def start_program(self, on_exit: Callable[[], None]) -> None:
        """Start the program and wait until it is ready. NotUp when it does not come up."""
        config = self._config
        await self.start(
            self._launch,
            on_exit,
            is_ready=is_ready if config.handshake else None,
            within_s=config.ready_secs,
        )

    async def ask(self, ctx: Context, payload: Any) -> JobOutcome:
        """The program's answer to one job."""
        self._ctx, self._printed = ctx, 0
        try:
            request = encode(Request(ctx.job.id, payload))
            return await self.request(request, lambda line: heard(ctx, line))
        finally:
            self._ctx = None

    async def _launch(self, said: Callable[[str], None], ended: Callable[[], None]) -> LineChild:
        return await LineChild.start_guarded(
            self._config.plan(),
            on_output=said,
            on_exit=ended,
            line_limit=self._config.line_limit,
        )

    def _print(self, line: str) -> None:
        self._printed += 1
        if self._printed > _MAX_PRINTED:
            return
        if self._ctx is not None:
            self._ctx.log.keep("info", f"stderr: {line}")
        else:
            _LOG.info("child %d of %s: %s", self.pid, self._config.kind, line)
