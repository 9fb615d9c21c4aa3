"""Counts by status as one line of text."""

from collections.abc import Mapping
from typing import Final

from .job import JobStatus

_ORDER: Final = (
    JobStatus.PENDING, JobStatus.RUNNING, JobStatus.FAILED, JobStatus.COMPLETED, JobStatus.DEAD,
)  # fmt: skip


def summary_text(counts: Mapping[str, int]) -> str:
    """One line; unknown statuses come last, in the order given.

    >>> summary_text({"completed": 12, "pending": 3, "parked": 1})
    'pending 3, running 0, failed 0, completed 12, dead 0, parked 1 (total 16)'
    >>> summary_text({})
    'no jobs'
    """
    total = sum(counts.values())
    if total == 0:
        return "no jobs"
    known = {str(status): counts.get(status, 0) for status in _ORDER}
    rest = {str(status): jobs for status, jobs in counts.items() if str(status) not in known}
    parts = ", ".join(f"{status} {jobs}" for status, jobs in {**known, **rest}.items())
    return f"{parts} (total {total})"
