"""Workflows for the simulation: plans of steps, sleeps and waits, and the handler that runs them.

Every value of a step is a number that is used once, so that a value tells which run of the function
made it.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from forge_jobs.core.job import NewJob
from forge_jobs.core.outcome import Restarted
from forge_jobs.core.steps import step_identity
from forge_jobs.engine.running.context import Context
from rigs.simulation.clocks import pass_time
from rigs.simulation.dice import Dice
from rigs.simulation.history import IN_TRANSACTION
from rigs.simulation.user_transactions import SimTransaction

if TYPE_CHECKING:
    from rigs.simulation.handlers import RunTracker

WORKFLOW_KIND: Final = "workflow"
# Numbers that do not collide with those of the other jobs.
FIRST_NUMBER: Final = 700_000
EVENT: Final = "go"
SHARED_KEYS: Final = ("k0", "k1")
# What a wait with a default returns after its deadline.
LATE: Final = -1


class Act(StrEnum):
    """One thing that a workflow does.

    *in_tx*: a step in the user's own transaction.
    *flaky*: a step whose function fails at first. *declared*: a step whose error is its result.
    *fail*: the handler fails between two steps, at first.
    """

    STEP = "step"
    FLAKY = "flaky"
    DECLARED = "declared"
    GATHER = "gather"
    SLEEP = "sleep"
    WAIT = "wait"
    FAIL = "fail"
    RESTART = "restart"
    IN_TX = "in_tx"


_ACTS: Final = (
    *[Act.STEP] * 5, *[Act.IN_TX] * 2, *[Act.WAIT] * 6, *[Act.SLEEP] * 3, Act.GATHER, Act.GATHER,
    Act.FLAKY, Act.DECLARED, Act.FAIL, Act.RESTART,
)  # fmt: skip


class PlannedAct(msgspec.Struct, frozen=True, omit_defaults=True):
    """``seconds``: of the work, the sleep, or until the deadline of a wait (0: none). ``key``: of
    the event; empty for an event without key or to this job."""

    act: Act
    seconds: float = 0.0
    key: str = ""


class WorkflowPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload of a workflow. ``restarted``: it has begun a new history."""

    number: int
    acts: tuple[PlannedAct, ...] = ()
    restarted: bool = False


class RefusedError(Exception):
    """An error that is the result of a step."""


def own_key(number: int) -> str:
    """The key of the events for one workflow."""
    return f"n{number}"


def workflow_job(number: int, dice: Dice) -> NewJob:
    """The request for a workflow."""
    acts = [_planned(number, dice) for _ in range(3 + dice.index(5))]
    return NewJob(
        kind=WORKFLOW_KIND,
        queue=dice.pick(("main", "main", "slow")),
        payload=msgspec.json.encode(WorkflowPlan(number, tuple(acts))),
        priority=dice.index(3) - 1,
        delay_s=round(dice.between(0.1, 5), 3) if dice.chance(0.1) else 0.0,
        expires_s=round(dice.between(2, 20), 3) if dice.chance(0.1) else None,
        max_attempts=1 + dice.index(5),
    )


def _planned(number: int, dice: Dice) -> PlannedAct:
    act = dice.pick(_ACTS)
    match act:
        case Act.WAIT:
            seconds = dice.between(0.5, 12) if dice.chance(0.6) else 0.0
            key = dice.pick((*SHARED_KEYS, own_key(number), ""))
            return PlannedAct(act, round(seconds, 3), key)
        case Act.SLEEP:
            return PlannedAct(act, round(dice.between(0.2, 6), 3))
        case _:
            return PlannedAct(act, round(dice.skewed(0, 3), 3))


class WorkflowRun:
    """One run of a workflow; records what its functions did and what its handler was given."""

    def __init__(self, runs: "RunTracker", who: str, run: int, ctx: Context) -> None:
        self._runs = runs
        self._who = who
        self._run = run
        self._ctx = ctx
        self._job = ctx.job.id

    async def run(self, plan: WorkflowPlan) -> int:
        """Execute the plan."""
        for place, planned in enumerate(plan.acts):
            await self._act(plan, place, planned)
        return len(plan.acts)

    async def _act(self, plan: WorkflowPlan, place: int, planned: PlannedAct) -> None:
        ctx, name = self._ctx, f"s{place}"
        match planned.act:
            case Act.STEP:
                self._saw(name, await ctx.step(name, self._function(name, planned)))
            case Act.IN_TX:
                await self._in_transaction(f"{IN_TRANSACTION}{place}", planned)
            case Act.FLAKY:
                flaky = self._function(name, planned, fails=self._is_early(place, 2))
                self._saw(name, await ctx.step(name, flaky))
            case Act.DECLARED:
                await self._declared(name, planned)
            case Act.GATHER:
                await self._gather(name, planned)
            case Act.SLEEP:
                await ctx.sleep(planned.seconds, name=name)
            case Act.WAIT:
                await self._wait(name, planned)
            case Act.FAIL:
                if self._is_early(place, 1):
                    raise OSError("failed between two steps")
            case Act.RESTART:
                if not plan.restarted:
                    again = msgspec.structs.replace(plan, restarted=True)
                    raise Restarted(msgspec.json.encode(again))

    async def _in_transaction(self, name: str, planned: PlannedAct) -> None:
        transaction = SimTransaction()
        function = self._function(name, planned, transaction=transaction)
        value = await self._ctx.step.using(tx=transaction)(name, function)
        await transaction.commit()
        self._saw(name, value)

    async def _declared(self, name: str, planned: PlannedAct) -> None:
        refused = self._function(name, planned, refuses=True)
        try:
            await self._ctx.step.using(errors=(RefusedError,))(name, refused)
        except RefusedError as error:
            self._saw(name, int(str(error)))

    async def _gather(self, name: str, planned: PlannedAct) -> None:
        keys = ("a", "b", "c")
        names = [step_identity(name, key=key) for key in keys]
        calls = [
            self._ctx.step.using(key=key)(name, self._function(identity, planned))
            for key, identity in zip(keys, names, strict=True)
        ]
        for identity, value in zip(names, await asyncio.gather(*calls), strict=True):
            self._saw(identity, value)

    async def _wait(self, name: str, planned: PlannedAct) -> None:
        if planned.seconds:
            value = await self._ctx.wait_for(
                EVENT, key=planned.key, timeout=planned.seconds, default=LATE, name=name
            )
        else:
            value = await self._ctx.wait_for(EVENT, key=planned.key, name=name)
        self._saw(name, value)

    def _function(
        self,
        name: str,
        planned: PlannedAct,
        *,
        fails: bool = False,
        refuses: bool = False,
        transaction: SimTransaction | None = None,
    ) -> Callable[[], Any]:
        async def function() -> int:
            if planned.seconds:
                await pass_time(planned.seconds)
            if fails:
                raise OSError("the function of a step failed")
            value = self._runs.number()
            made = (self._who, self._run, self._job, name, value)
            self._runs.ran_step(*made)
            if transaction is not None:
                transaction.writes.append(lambda: self._runs.committed(*made))
            if refuses:
                raise RefusedError(str(value))
            return value

        return function

    def _is_early(self, place: int, times: int) -> bool:
        return self._runs.tries(f"{self._job}/{place}") <= times

    def _saw(self, name: str, value: int) -> None:
        self._runs.saw_step(self._who, self._run, self._job, name, value)
