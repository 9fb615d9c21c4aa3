"""Handlers that act out plans, and tell the history when they begin and how they end."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from forge_jobs.core.errors import StoreError
from forge_jobs.core.job import NewJob
from forge_jobs.core.outcome import Dead, Done, Failed, Snooze, Throttled
from forge_jobs.core.retry import Retry
from forge_jobs.engine.running.context import Context
from forge_jobs.engine.running.registry import Handler, HandlerRegistry, RunIn
from rigs.simulation.bound import KINDS as BOUND_KINDS
from rigs.simulation.bound import declared
from rigs.simulation.clocks import pass_time
from rigs.simulation.history import History, Ran
from rigs.simulation.plan import (
    CHILD_KIND,
    FRESH_KIND,
    LETTER_KIND,
    WORK_KIND,
    Deed,
    Plan,
    child_job,
)

_RETRY = Retry(base=1, max=20)


class Stage:
    """What handlers of all nodes share: the history, and how often each job ran so far.

    The count stands for the outside world that a real handler would look at.
    """

    def __init__(self, history: History, now: Callable[[], int]) -> None:
        self._history = history
        self._now = now
        self._runs = 0
        self._numbers = 1_000_000
        self._times: dict[str, int] = {}

    def begin(self, who: str, job: str) -> tuple[int, int]:
        """A handler starts: the number of the run, and how often this job has started."""
        self._runs += 1
        self._times[job] = self._times.get(job, 0) + 1
        self._history.add(Ran(self._now(), who, self._runs, job))
        return self._runs, self._times[job]

    def end(self, who: str, run: int, job: str, how: str) -> None:
        """A handler has ended."""
        self._history.add(Ran(self._now(), who, run, job, how))

    def number(self) -> int:
        """A fresh number for a job that another job makes."""
        self._numbers += 1
        return self._numbers


def registry(stage: Stage, who: str, *, fresh: bool, bound: bool = False) -> HandlerRegistry:
    """The handlers of one node; an older release (``fresh`` False) lacks one kind. ``bound``: the
    world has limits and lanes."""
    known = HandlerRegistry()
    kinds = (WORK_KIND, CHILD_KIND, LETTER_KIND, *((FRESH_KIND,) if fresh else ()))
    if bound:
        kinds += BOUND_KINDS
        known.limits.update(declared())
    for kind in kinds:
        known.register(
            Handler(kind=kind, run_in=RunIn.LOOP, call=_acting(stage, who), retry=_RETRY)
        )
    return known


def _acting(stage: Stage, who: str) -> Callable[[bytes, Callable[[], Context]], Any]:
    def call(payload: bytes, make_context: Callable[[], Context]) -> Any:
        return _run(stage, who, payload, make_context())

    return call


async def _run(stage: Stage, who: str, payload: bytes, ctx: Context) -> object:
    run, times = stage.begin(who, ctx.job.id)
    how = "returned"
    try:
        if ctx.job.kind == LETTER_KIND:
            return None
        return await _act(stage, msgspec.json.decode(payload, type=Plan), times, ctx)
    except BaseException as error:
        how = type(error).__name__
        raise
    finally:
        stage.end(who, run, ctx.job.id, how)


async def _act(stage: Stage, plan: Plan, times: int, ctx: Context) -> object:
    ctx.progress(0.1, "begun")
    if plan.work_s:
        await _work(plan)
    elif plan.shape % 2:
        await pass_time(0)
    match plan.deed:
        case Deed.FLAKY if times <= plan.times:
            raise OSError(f"attempt {times} of {plan.times} that fail")
        case Deed.DOOMED:
            raise ValueError("this one always fails")
        case Deed.PERMANENT:
            raise Dead("no use trying again")
        case Deed.ODD if times <= plan.times:
            return _odd(plan)
        case Deed.SNOOZE if times <= plan.times:
            return Snooze(1 + plan.shape / 200)
        case Deed.THROTTLE if times <= plan.times:
            raise Throttled(retry_after=1 + plan.shape / 300)
        case Deed.PARENT:
            for _ in range(1 + plan.shape % 2):
                ctx.on_done(_Ready(child_job(ctx.job.id, stage.number())))
        case Deed.SPAWN:
            await _spawn(stage, ctx)
        case _:
            pass
    ctx.log.info("ended well")
    return {"number": plan.number, "times": times}


async def _work(plan: Plan) -> None:
    try:
        await pass_time(plan.work_s)
    except asyncio.CancelledError:
        if plan.deed is Deed.STUBBORN:
            # Tidies up before it obeys, as careful handlers do.
            await pass_time(0.2 + plan.shape / 2_000)
        raise


async def _spawn(stage: Stage, ctx: Context) -> None:
    try:
        # No parent: such a job is stored at once and may come twice when this one runs twice.
        await ctx.aenqueue(_Ready(child_job("", stage.number())))
    except StoreError:
        raise Failed("could not enqueue") from None


class _Ready:
    """A request that is already made."""

    def __init__(self, job: NewJob) -> None:
        self._job = job

    def bind(self, *args: object, **kwargs: object) -> NewJob:
        return self._job


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even a message")


class _Harsh(BaseException):
    pass


def _odd(plan: Plan) -> object:
    """Return or raise what no handler should."""
    match plan.shape % 12:
        case 0:
            raise _Harsh("outside Exception")
        case 1:
            raise _Unspeakable
        case 2:
            raise RecursionError("too deep")
        case 3:
            raise asyncio.CancelledError
        case 4:
            raise TimeoutError("not the engine's")
        case 5:
            raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])
        case 6:
            return float("nan")
        case 7:
            return object()
        case 8:
            return {"text": "\ud800"}
        case 9:
            raise SystemExit(3)
        case 10:
            raise KeyboardInterrupt
        case _:
            return Done(["chosen"])
