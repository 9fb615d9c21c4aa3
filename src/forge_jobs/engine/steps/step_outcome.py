"""How a run with steps ends: what its handler did, seen together with its steps."""

from forge_jobs.core.outcome import Dead, Done, Failed, Parked, Restarted, Snooze, Throttled
from forge_jobs.core.steps import ClaimedSteps
from forge_jobs.engine.running.run import Run, RunOutcome

from .handler_steps import HandlerSteps
from .run_steps import RunSteps
from .thread_steps import ThreadSteps


def run_steps_of(run: Run) -> RunSteps:
    """The steps of a run; they are made by the first call."""
    steps = run.steps
    if isinstance(steps, RunSteps):
        return steps
    made = run.steps = RunSteps(run, steps, run.in_flight.steps)
    if steps is not None:
        run.in_flight.run_log.resumed(run, len(steps.records), more=steps.more)
    return made


def handler_steps_of(run: Run) -> HandlerSteps:
    """The handler's side of them."""
    steps = run_steps_of(run)
    if steps.handler_side is None:
        # A handler without a launcher runs in a slot task of the loop.
        port = steps if run.launch is None else ThreadSteps(steps)
        steps.handler_side = HandlerSteps(port)
    return steps.handler_side


def outcome_with_steps(run: Run, run_outcome: RunOutcome) -> RunOutcome:
    """The outcome that counts, while the run still counts as running."""
    steps = run.steps
    if steps is None or isinstance(steps, ClaimedSteps):
        return _without_steps(run_outcome)
    if steps.parked is not None:
        return _parked(steps, steps.parked, run_outcome)
    outcome = run_outcome.outcome
    if isinstance(outcome, Failed | Dead):
        if isinstance(outcome, Failed) and steps.retry_delay is not None:
            message, steps.exact_delay_s = steps.retry_delay
            if message != outcome.message:
                steps.exact_delay_s = None
        return run_outcome
    open_steps = [] if steps.handler_side is None else steps.handler_side.names.open
    if open_steps and isinstance(outcome, Done | Snooze | Throttled | Restarted):
        return RunOutcome(
            Failed(
                f"the handler returned while step {open_steps[0]!r} was open: await every step "
                "(asyncio.gather or a TaskGroup for several)"
            )
        )
    _warn_of_undeclared(steps)
    if isinstance(outcome, Restarted):
        return RunOutcome(Restarted(outcome.payload, steps.cursors()), explicit=True)
    return _without_steps(run_outcome)


def has_unread_cursors(steps: RunSteps, run_outcome: RunOutcome) -> bool:
    """Whether this is a restart that keeps events which were not read yet."""
    return isinstance(run_outcome.outcome, Restarted) and steps.history.more


async def with_all_cursors(steps: RunSteps, run_outcome: RunOutcome) -> RunOutcome:
    """The outcome with the last event of every topic, if it is a restart."""
    outcome = run_outcome.outcome
    if not isinstance(outcome, Restarted) or not steps.history.more:
        return run_outcome
    await steps.history.read_all()
    return RunOutcome(Restarted(outcome.payload, steps.cursors()), explicit=True)


def _without_steps(run_outcome: RunOutcome) -> RunOutcome:
    if isinstance(run_outcome.outcome, Parked):
        return RunOutcome(
            Failed("the handler raised the signal to suspend by itself: use ctx.sleep or wait_for")
        )
    return run_outcome


def _parked(steps: RunSteps, parked: Parked, run_outcome: RunOutcome) -> RunOutcome:
    outcome, where = run_outcome.outcome, steps.parked_at
    if isinstance(outcome, Parked):
        _warn_of_undeclared(steps)
        return RunOutcome(parked, explicit=True)
    if isinstance(outcome, Failed | Dead):
        return run_outcome
    return RunOutcome(
        Failed(
            f"the handler went on although its run had to end at {where}: it swallowed the signal. "
            "Catch Exception instead of BaseException, and use asyncio.gather without "
            "return_exceptions=True around a sleep or wait"
        )
    )


def _warn_of_undeclared(steps: RunSteps) -> None:
    if steps.handler_side is None:
        return
    for shown, error in steps.handler_side.undeclared.items():
        steps.warn(
            f"step {shown!r} raised {error} and the handler went on: a later run calls its "
            f"function again. errors=({error},) stores the error instead"
        )
