"""The contract for the stored steps of jobs, apart from writing them: ``JobStore.exchange`` does
that."""

from collections.abc import Sequence
from typing import Protocol

from forge_jobs.core.steps import StepRecord


class StepStore(Protocol):
    """Reads the histories of jobs, and cuts them off for a retry."""

    async def page(
        self,
        job_id: str,
        *,
        after: str | None = None,
        limit: int = 1_000,
        values: bool = True,
        names: Sequence[str] = (),
    ) -> list[StepRecord]:
        """Steps of a job in the order of their names, after the name ``after``; with ``names`` only
        those. Without ``values`` they come without values. Empty for an unknown job."""
        ...

    async def retry_from(self, job_id: str, step: str) -> bool:
        """Delete the step with this name and all that began at the same time or later, then retry
        the job as ``BulkAction.RETRY`` does, in one transaction.

        False, without an effect, if the job is not failed, dead or cancelled. NotFound if job or
        step do not exist. KeyTaken if another live job holds its dedupe key.
        """
        ...
