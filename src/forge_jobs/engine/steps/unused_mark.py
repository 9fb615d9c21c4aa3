"""What a run that ends its job stores of the steps that it did not use."""

from msgspec import structs

from forge_jobs.core.decide import Finish
from forge_jobs.core.instant import Instant
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import ClaimedSteps, FinishSteps, StepRecord
from forge_jobs.core.unused_steps import unused_write

from .history import History
from .run_steps import RunSteps

_ENDED = (JobStatus.DONE, JobStatus.DEAD)


def with_unused(steps: RunSteps | ClaimedSteps, finish: Finish, now: Instant) -> Finish:
    """The finish of a run with steps. If it ends the job, and steps of earlier runs were not used,
    it stores their names."""
    if finish.status not in _ENDED:
        return finish
    # A handler that used no steps has read none either.
    history = steps.history if isinstance(steps, RunSteps) else History(steps, _read_none)
    unused = history.unused(finish.epoch, to_the_end=finish.status is JobStatus.DONE)
    if unused is None:
        return finish
    write = unused_write(finish.key, finish.epoch, now, unused)
    return structs.replace(finish, steps=FinishSteps(steps=(write,)))


async def _read_none(_: str) -> list[StepRecord]:
    return []
