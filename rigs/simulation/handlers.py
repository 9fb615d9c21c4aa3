"""Handlers that execute plans and record when they start and how they end."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from forge_jobs.core.errors import StoreError
from forge_jobs.core.job import NewJob
from forge_jobs.core.kind_signature import ArgumentMismatch, KindSignature
from forge_jobs.core.outcome import Dead, Done, Failed, Snooze, Throttled
from forge_jobs.core.retry import Retry
from forge_jobs.engine.running.context import Context
from forge_jobs.engine.running.registry import Handler, HandlerRegistry, RunIn
from rigs.simulation.bound import KINDS as BOUND_KINDS
from rigs.simulation.bound import declared
from rigs.simulation.clocks import pass_time
from rigs.simulation.history import EffectCommitted, HandlerRan, History, StepRan, StepSeen
from rigs.simulation.plan import (
    CHILD_KIND,
    FRESH_KIND,
    LETTER_KIND,
    WORK_KIND,
    Behaviour,
    Needs,
    Plan,
    child_job,
)
from rigs.simulation.workflows import WORKFLOW_KIND, WorkflowPlan, WorkflowRun

_RETRY = Retry(base=1, max=20)


class RunTracker:
    """Shared by the handlers of all nodes: the history, and how often each job ran so far.

    The count stands for the external state that a real handler would read.
    """

    def __init__(self, history: History, now: Callable[[], int]) -> None:
        self._history = history
        self._now = now
        self._runs = 0
        self._numbers = 1_000_000
        self._times: dict[str, int] = {}
        self._tries: Counter[str] = Counter()

    def begin(self, who: str, job: str) -> tuple[int, int]:
        """Record the start of a handler; the number of the run, and of this job's runs."""
        self._runs += 1
        self._times[job] = self._times.get(job, 0) + 1
        self._history.add(HandlerRan(self._now(), who, self._runs, job))
        return self._runs, self._times[job]

    def end(self, who: str, run: int, job: str, how: str) -> None:
        """Record the end of a handler."""
        self._history.add(HandlerRan(self._now(), who, run, job, how))

    def ran_step(self, who: str, run: int, job: str, name: str, value: int) -> None:
        """Record the effect of a step's function."""
        self._history.add(StepRan(self._now(), who, run, job, name, value))

    def committed(self, who: str, run: int, job: str, name: str, value: int) -> None:
        """Record that the effect of a step was committed with it."""
        self._history.add(EffectCommitted(self._now(), who, run, job, name, value))

    def saw_step(self, who: str, run: int, job: str, name: str, value: int) -> None:
        """Record that a handler was given the value of a step or wait."""
        self._history.add(StepSeen(self._now(), who, run, job, name, value))

    def tries(self, what: str) -> int:
        """How often this was tried, with this time."""
        self._tries[what] += 1
        return self._tries[what]

    def number(self) -> int:
        """A new number for a job that another job enqueues."""
        self._numbers += 1
        return self._numbers


def registry(runs: RunTracker, who: str, *, fresh: bool, bound: bool = False) -> HandlerRegistry:
    """The handlers of one node; an older release (``fresh`` False) lacks one kind, and refuses the
    arguments of some jobs of another. ``bound``: the simulation has limits and lanes."""
    known = HandlerRegistry()
    kinds = (WORK_KIND, CHILD_KIND, LETTER_KIND, WORKFLOW_KIND, *((FRESH_KIND,) if fresh else ()))
    if bound:
        kinds += BOUND_KINDS
        known.limits.update(declared())
    for kind in kinds:
        older = kind == WORK_KIND and not fresh
        known.register(
            Handler(
                kind=kind,
                run_in=RunIn.LOOP,
                call=_make_call(runs, who, older=older),
                retry=_RETRY,
                signature=lambda older=older: _OLDER if older else _NEWER,
            )
        )
    return known


_NEWER = KindSignature(required=("number",), extra=True, types="newer")
_OLDER = KindSignature(
    required=("number",),
    optional=tuple(name for name in Plan.__struct_fields__ if name not in ("number", "needs")),
    types="older",
)


def _make_call(
    runs: RunTracker, who: str, *, older: bool
) -> Callable[[bytes, Callable[[], Context]], Any]:
    def call(payload: bytes, make_context: Callable[[], Context]) -> Any:
        if older:
            _refuse(payload)
        return _run(runs, who, payload, make_context())

    return call


def _refuse(payload: bytes) -> None:
    """What decoding the arguments does in a real task of an older release."""
    needs = msgspec.json.decode(payload, type=Plan).needs
    if needs is Needs.NAME:
        names = tuple(msgspec.json.decode(payload, type=dict[str, msgspec.Raw]))
        raise ArgumentMismatch("unknown argument 'needs'", names=names, by_value=False)
    if needs is Needs.VALUE:
        raise ArgumentMismatch("expected `int`", names=("number",), by_value=True)


async def _run(runs: RunTracker, who: str, payload: bytes, ctx: Context) -> object:
    run, times = runs.begin(who, ctx.job.id)
    how = "returned"
    try:
        if ctx.job.kind == LETTER_KIND:
            return None
        if ctx.job.kind == WORKFLOW_KIND:
            plan = msgspec.json.decode(payload, type=WorkflowPlan)
            return await WorkflowRun(runs, who, run, ctx).run(plan)
        return await _run_plan(runs, msgspec.json.decode(payload, type=Plan), times, ctx)
    except BaseException as error:
        how = type(error).__name__
        raise
    finally:
        runs.end(who, run, ctx.job.id, how)


async def _run_plan(runs: RunTracker, plan: Plan, times: int, ctx: Context) -> object:
    ctx.progress(0.1, "begun")
    if plan.work_s:
        await _work(plan)
    elif plan.shape % 2:
        await pass_time(0)
    match plan.behaviour:
        case Behaviour.FLAKY if times <= plan.times:
            raise OSError(f"attempt {times} of {plan.times} that fail")
        case Behaviour.DOOMED:
            raise ValueError("this one always fails")
        case Behaviour.PERMANENT:
            raise Dead("no use trying again")
        case Behaviour.ODD if times <= plan.times:
            return _misbehave(plan)
        case Behaviour.SNOOZE if times <= plan.times:
            return Snooze(1 + plan.shape / 200)
        case Behaviour.THROTTLE if times <= plan.times:
            raise Throttled(retry_after=1 + plan.shape / 300)
        case Behaviour.PARENT:
            for _ in range(1 + plan.shape % 2):
                ctx.on_done(_PreparedJob(child_job(ctx.job.id, runs.number())))
        case Behaviour.SPAWN:
            await _spawn(runs, ctx)
        case _:
            pass
    ctx.log.info("ended well")
    return {"number": plan.number, "times": times}


async def _work(plan: Plan) -> None:
    try:
        await pass_time(plan.work_s)
    except asyncio.CancelledError:
        if plan.behaviour is Behaviour.STUBBORN:
            # Cleans up before it ends, as careful handlers do.
            await pass_time(0.2 + plan.shape / 2_000)
        raise


async def _spawn(runs: RunTracker, ctx: Context) -> None:
    try:
        # No parent: such a job is stored at once, and twice if this one runs twice.
        await ctx.aenqueue(_PreparedJob(child_job("", runs.number())))
    except StoreError:
        raise Failed("could not enqueue") from None


class _PreparedJob:
    """A task whose ``bind`` returns a prepared job."""

    def __init__(self, job: NewJob) -> None:
        self._job = job

    def bind(self, *args: object, **kwargs: object) -> NewJob:
        return self._job


class _UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even a message")


class _NonStandardError(BaseException):
    pass


def _misbehave(plan: Plan) -> object:
    """Return or raise a value that no handler should."""
    match plan.shape % 12:
        case 0:
            raise _NonStandardError("outside Exception")
        case 1:
            raise _UnprintableError
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
