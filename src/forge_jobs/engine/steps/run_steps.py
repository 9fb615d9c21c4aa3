"""The steps of one run in its worker process: what is stored, what is sent, how the run ends."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from forge_jobs.core.decide import StepProgress
from forge_jobs.core.errors import BadStep, LeaseLost
from forge_jobs.core.events import Wait, WaitTopic
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Claim
from forge_jobs.core.outcome import Parked
from forge_jobs.core.steps import (
    MAX_FAILED_RUNS,
    MAX_HISTORY_BYTES,
    MAX_STEPS,
    ClaimedSteps,
    StepKind,
    StepRecord,
    StepWrite,
    cursor_name,
    shown_step,
)
from forge_jobs.engine.running.error_text import error_text
from forge_jobs.engine.running.run import Run, RunState, StopReason
from forge_jobs.kit.clock import Clock
from forge_jobs.store.jobs import StepAnswer, Verdict, WaitCheck
from forge_jobs.store.store import Store

from .handler_steps import HandlerSteps
from .history import History

if TYPE_CHECKING:
    from forge_jobs.engine.claiming.step_buffer import StepBuffer
    from forge_jobs.engine.claiming.store_time import StoreTime
    from forge_jobs.engine.running.job_loop import JobLoop

_COMMIT_S: Final = 5.0
_COMMIT_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class StepEnvironment:
    """What the steps of all runs of a process share. ``lose`` ends a run whose claim is gone."""

    buffer: "StepBuffer"
    store: Store
    store_time: "StoreTime"
    owner: Callable[[], int]
    job_loop: "JobLoop"
    clock: Clock
    lose: Callable[[Run], None]


class RunSteps:
    """The history of one run and what it adds to it; the ``StepPort`` of handlers on the job loop.

    ``parked`` is set when the handler was told to end for now, ``parked_at`` says where.
    """

    allows_sync = False
    allows_async = True
    takes_no_time = False

    def __init__(self, run: Run, claimed: ClaimedSteps | None, around: StepEnvironment) -> None:
        self.run = run
        self.around = around
        self.claim = Claim(run.job.key, run.job.epoch)
        self.history = History(claimed, self._read_page)
        self.handler_side: HandlerSteps | None = None
        self.failed_runs = 0 if claimed is None else claimed.failed_runs
        self.has_stored = False
        self._has_sent = False
        self.parked: Parked | None = None
        self.parked_at = ""
        self.retry_delay: tuple[str, float] | None = None
        self.exact_delay_s: float | None = None
        self.uncommitted: dict[str, str] = {}
        self._had_history = claimed is not None

    # -- the job ----------------------------------------------------------------------------------

    @property
    def job_id(self) -> str:
        """Its public id."""
        return self.run.id

    @property
    def enqueued_at(self) -> Instant:
        """When it was enqueued."""
        return self.run.job.enqueued_at

    @property
    def progress(self) -> StepProgress | None:
        """What a finish must know; None while the job can have no stored steps. A step whose answer
        the run did not wait for counts: it is written before the finish, or never."""
        if not (self._had_history or self._has_sent or self.has_stored):
            return None
        retry = self.run.handler.retry
        return StepProgress(self.has_stored, MAX_FAILED_RUNS if retry is None else retry.total)

    def assume_stored(self) -> None:
        """A step may be committed by the time of the finish, although the store did not say so."""
        self._has_sent = True

    def cursors(self) -> tuple[StepWrite, ...]:
        """What a restart keeps: the last event of each topic that the job took."""
        now, claim = self.now(), self.claim
        return tuple(
            StepWrite(
                claim.key, claim.epoch, cursor_name(topic), StepKind.CURSOR, now, now,
                str(seq).encode(),
            )
            for topic, seq in self.history.cursors().items()
        )  # fmt: skip

    # -- the port of handlers on the job loop -----------------------------------------------------

    def check_caller(self) -> None:
        """As the port says."""
        self.check_running()
        if not self.around.job_loop.is_here:
            raise BadStep(
                "ctx.step, ctx.sleep and ctx.wait_for belong to the event loop of their handler: "
                "call them there, not in another thread or loop"
            )

    def check_running(self) -> None:
        """BadStep after the handler has ended, LeaseLost after its claim was lost."""
        run = self.run
        if run.state is RunState.RUNNING and run.stop is not StopReason.LOST:
            return
        if run.state is RunState.LOST or run.stop is StopReason.LOST:
            raise LeaseLost(f"job {run.id}: this worker lost its claim of it")
        raise run_has_ended(run.id)

    def now(self) -> Instant:
        """As the port says."""
        return self.around.store_time.now()

    def count(self) -> int:
        """As the port says."""
        return len(self.history)

    def check_room(self, name: str, size: int) -> None:
        """As the port says."""
        history = self.history
        if len(history) >= MAX_STEPS:
            raise BadStep(
                f"{shown_step(name)!r} would be step {MAX_STEPS + 1:,} of job {self.run.id}, and "
                f"{MAX_STEPS:,} are the limit: `raise ctx.restart(...)` earlier begins a new "
                "history; ctx.steps counts"
            )
        if history.size + size > MAX_HISTORY_BYTES:
            raise BadStep(
                f"{shown_step(name)!r}: the steps of job {self.run.id} would hold more than "
                f"{MAX_HISTORY_BYTES >> 20} MiB: return references instead of data, or begin a new "
                "history with `raise ctx.restart(...)`"
            )

    async def find(self, name: str) -> StepRecord | None:
        """As the port says."""
        is_known, record = self.history.known(name)
        return record if is_known else await self.history.find(name)

    async def store(self, step: StepWrite) -> StepRecord | None:
        """As the port says."""
        answer = await self._answer(step)
        if answer.verdict is Verdict.ALREADY and answer.record is not None:
            self.history.add(answer.record)
            return answer.record
        self.history.add(answer.record or _record(step))
        return None

    async def check_wait(self, wait: Wait) -> StepRecord | None:
        """As the port says."""
        await self.history.read_all()
        answer = await self._answer(WaitCheck(self.claim, self._with_cursors(wait)))
        if answer.record is not None:
            self.history.add(answer.record)
        return answer.record

    async def sleep_is_over(self, instant: Instant) -> bool:
        """As the port says: a claim before the end of a sleep, for which nothing stored is the
        reason, was asked for by a person. It ends the earliest of the sleeps."""
        await self.history.read_all()
        job, now = self.run.job, self.now()
        sleeps = self.history.sleeps()
        ahead = [one for one in sleeps if one > now]
        if job.run_at >= instant or job.run_at in sleeps or instant > min(ahead, default=instant):
            return False
        if self.history.last_wait_ended_at() >= job.run_at:
            return False
        # After a failure its retry is the reason, unless this claim follows the one that parked.
        return (job.attempts == 1 and self.failed_runs == 0) or self._parked_last(instant)

    def park(
        self, wait: Wait | None, wake_at: Instant | None, steps: tuple[StepWrite, ...], where: str
    ) -> None:
        """As the port says."""
        waiting = None if wait is None else self._with_cursors(wait)
        self.parked = Parked(waiting, wake_at, steps)
        self.parked_at = where

    async def store_in(self, transaction: object, step: StepWrite, shown: str) -> None:
        """As the port says."""
        around = self.around
        try:
            await around.store.astore_step_in(transaction, around.owner(), step)
        except LeaseLost:
            around.lose(self.run)
            raise
        self.stored_in(step, shown)

    def stored_in(self, step: StepWrite, shown: str) -> None:
        """A step was stored in a transaction of the user's, who has yet to commit it."""
        self.history.add(_record(step))
        self.uncommitted[step.name] = shown

    async def check_committed(self) -> None:
        """As the port says. Reads never wait for the user's locks; anything that this process wrote
        for the job would, and with it all its other jobs."""
        if not self.uncommitted:
            return
        store, clock = self.around.store, self.around.clock
        is_patient = store.capabilities.server_side
        end = clock.mono() + (_COMMIT_S if is_patient else 0.0)
        while True:
            names = tuple(self.uncommitted)
            for record in await store.steps.page(self.run.id, names=names, values=False):
                if record.epoch == self.claim.epoch:
                    self.uncommitted.pop(record.name, None)
                    self.has_stored = True
            if not self.uncommitted:
                return
            if clock.mono() >= end:
                shown = next(iter(self.uncommitted.values()))
                raise BadStep(
                    f"the transaction of step {shown!r} (tx=) is not committed: commit it before "
                    "the next step, sleep or wait and before the handler ends"
                )
            await clock.sleep(_COMMIT_POLL_S)

    async def pause(self, seconds: float) -> None:
        """As the port says."""
        await self.around.clock.sleep(seconds)

    def retry_later(self, error: BaseException, delay_s: float) -> None:
        """As the port says."""
        self.retry_delay = (error_text(error), delay_s)

    def warn(self, text: str) -> None:
        """As the port says."""
        self.run.make_context().log.warning("%s", text)

    # -- parts ------------------------------------------------------------------------------------

    async def _read_page(self, last: str) -> list[StepRecord]:
        return await self.around.store.steps.page(self.run.id, after=last or None)

    async def _answer(self, sent: StepWrite | WaitCheck) -> StepAnswer:
        reply: asyncio.Future[StepAnswer] = self.around.job_loop.loop.create_future()

        def on_answer(answer: StepAnswer | Exception) -> None:
            error = answer if isinstance(answer, Exception) else self._noted(sent, answer)
            if reply.done():
                return
            if error is not None:
                reply.set_exception(error)
            elif isinstance(answer, StepAnswer):
                reply.set_result(answer)

        self.check_running()
        self._has_sent = True
        self.around.buffer.add(sent, on_answer)
        return await reply

    def _noted(self, sent: StepWrite | WaitCheck, answer: StepAnswer) -> Exception | None:
        """Keep what an answer says of this run; the error if its claim is gone."""
        verdict, record = answer.verdict, answer.record
        if verdict is Verdict.STALE:
            self.around.lose(self.run)
            return LeaseLost(f"job {self.run.id}: this worker's claim of it is gone")
        is_applied = verdict is Verdict.APPLIED and isinstance(sent, StepWrite)
        if is_applied or (record is not None and record.epoch == self.claim.epoch):
            self.has_stored = True
        return None

    def _with_cursors(self, wait: Wait) -> Wait:
        cursors = self.history.cursors()
        topics = tuple(
            WaitTopic(one.topic, cursors.get(one.topic, 0), one.since) for one in wait.topics
        )
        return msgspec.structs.replace(wait, topics=topics)

    def _parked_last(self, instant: Instant) -> bool:
        return self.history.sleep_epoch(instant) == self.claim.epoch - 1


def run_has_ended(job_id: str) -> BadStep:
    """The error of a call after the handler has returned."""
    return BadStep(
        f"the run of job {job_id} has ended: await every step in its handler, and use ctx only "
        "while it runs"
    )


def _record(step: StepWrite) -> StepRecord:
    return StepRecord(
        step.name, step.kind, step.epoch, step.began_at, step.ended_at, step.value,
        step.fingerprint, len(step.value or b""),
    )  # fmt: skip
