"""``WorkerPoolHandler``: runs jobs in warm programs of any language, one job at a time in each."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Unpack

from forge_jobs.core.errors import BadOption
from forge_jobs.core.names import kind_name
from forge_jobs.core.outcome import Dead, Failed, JobOutcome
from forge_jobs.engine.running.context import Context
from forge_jobs.kit.children.line_child import LineChild
from forge_jobs.kit.children.memory import resident_bytes
from forge_jobs.kit.children.parent_link import BadLine
from forge_jobs.kit.children.pool import ChildPool
from forge_jobs.kit.children.process import ChildGone
from forge_jobs.kit.children.warm_child import ChildUnavailable, WarmChild
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.kit.traceback_text import output_text

from .worker_pool_config import PoolOptions, WorkerPoolConfig
from .worker_pool_wire import JobRequest, ProtocolError, encode, handle_reply, is_ready

_LOG = logging.getLogger("forge_jobs.child")
_MAX_OUTPUT_LINES: Final = 1_000
_MAX_CHILDREN_TRIED: Final = 3
_LAST_LINES: Final = 100


class WorkerPoolHandler:
    """Sends each job to an idle child of its pool; ``docs/handlers.md`` describes the protocol.

    Every worker process has a pool of its own. Children are started on demand and stay warm.

    >>> config = WorkerPoolConfig(argv=["node", "resize.js"], kind="resize", size=4)
    >>> forge.register(WorkerPoolHandler(config), queue="images")
    """

    # A child cannot crash the worker, so a job that is suspected of it needs no isolated process.
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
        """Run one attempt: wait for an idle child, send the job, return the child's outcome."""
        pool = ctx.shared(self, self._new_pool)
        limit_s = self.config.timeout_secs
        try:
            async with asyncio.timeout(limit_s):
                return await self._run_in_pool(ctx, payload, pool)
        except TimeoutError:
            return Failed(f"timed out after {limit_s:g} s")

    async def _run_in_pool(
        self, ctx: Context, payload: Any, pool: "ChildPool[_PoolChild]"
    ) -> JobOutcome:
        why = ""
        for _ in range(_MAX_CHILDREN_TRIED):
            try:
                child = await pool.acquire()
            except ChildUnavailable as error:
                return Failed(f"{self.kind}: {error}")
            try:
                return await self._run_in_child(ctx, payload, pool, child)
            except ChildUnavailable as error:
                # The child died or sent a line while it was idle. This job did not cause it.
                why = str(error)
            finally:
                pool.release(child)
        return Failed(f"{self.kind}: {why}")

    async def _run_in_child(
        self, ctx: Context, payload: Any, pool: "ChildPool[_PoolChild]", child: "_PoolChild"
    ) -> JobOutcome:
        try:
            outcome = await child.run_job(ctx, payload)
        except ChildGone as ended:
            pool.record_failure()
            return child.with_output(
                Failed(f"{self.kind}: the child died before it answered: {ended}")
            )
        except (ProtocolError, BadLine) as error:
            await child.kill()
            pool.record_failure()
            return child.with_output(Failed(f"{self.kind}: the child was killed: {error}"))
        except BaseException:
            # Cancelled or timed out: the child still runs the job, and only its end can stop it.
            await child.terminate(self.config.grace_secs)
            raise
        pool.record_success()
        return child.with_output(outcome) if isinstance(outcome, Failed | Dead) else outcome

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

    def _is_worn_out(self, child: "_PoolChild") -> bool:
        if child.jobs >= self.config.max_jobs:
            return True
        max_mb = self.config.max_memory_mb
        if max_mb is None:
            return False
        used = resident_bytes(child.pid)
        return used is not None and used > max_mb << 20


class _PoolChild(WarmChild):
    """A warm child that runs any program with the pool protocol."""

    def __init__(self, config: WorkerPoolConfig) -> None:
        super().__init__(self._log_output)
        self._config = config
        self._ctx: Context | None = None
        self._output_lines = 0
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)

    async def start_program(self, on_exit: Callable[[], None]) -> None:
        """Start the program and wait until it is ready. Raises ChildUnavailable if it is not."""
        config = self._config
        await self.start(
            self._launch,
            on_exit,
            is_ready=is_ready if config.handshake else None,
            timeout_s=config.ready_secs,
        )

    async def run_job(self, ctx: Context, payload: Any) -> JobOutcome:
        """Send one job to the program and return the outcome it reports."""
        self._ctx, self._output_lines = ctx, 0
        self._last_lines.clear()
        try:
            request = encode(JobRequest(ctx.job.id, payload))
            return await self.request(request, lambda line: handle_reply(ctx, line))
        finally:
            self._ctx = None

    def with_output(self, outcome: JobOutcome) -> JobOutcome:
        """A failure with the last lines that the program wrote to its standard error."""
        outcome.traceback = output_text("\n".join(self._last_lines))
        return outcome

    async def _launch(
        self, on_output: Callable[[str], None], on_exit: Callable[[], None]
    ) -> LineChild:
        return await LineChild.start_guarded(
            self._config.command_spec(),
            on_output=on_output,
            on_exit=on_exit,
            line_limit=self._config.line_limit,
        )

    def _log_output(self, line: str) -> None:
        self._output_lines += 1
        self._last_lines.append(line)
        if self._output_lines > _MAX_OUTPUT_LINES:
            return
        if self._ctx is not None:
            self._ctx.log.keep("info", f"stderr: {line}")
        else:
            _LOG.info("child %d of %s: %s", self.pid, self._config.kind, line)
