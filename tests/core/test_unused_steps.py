"""The names of unused steps: bounded, and read back only for the run that ended the job."""

import msgspec
import pytest

from forge_jobs.core import unused_steps
from forge_jobs.core.job import JobRecord
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import StepKind, StepRecord, is_internal
from forge_jobs.core.unused_steps import read_unused, unused_record, unused_write


def kept_by(epoch: int, *names: str, after: str | None = None) -> StepRecord:
    unused = unused_steps.unused_steps(names, after)
    assert unused is not None
    write = unused_write(1, epoch, 9, unused)
    assert is_internal(write.name)
    return StepRecord(write.name, write.kind, write.epoch, 9, 9, write.value)


def job(status: JobStatus, epoch: int) -> JobRecord:
    return JobRecord(
        key=1, id="j", kind="k", queue="q", status=status, payload=b"{}", priority=0, attempts=1,
        max_attempts=1, epoch=epoch, enqueued_at=0, run_at=0,
    )  # fmt: skip


def step(name: str, epoch: int = 1) -> StepRecord:
    return StepRecord(name, StepKind.STEP, epoch, 1, 2)


def test_nothing_to_keep_is_nothing() -> None:
    assert unused_steps.unused_steps([]) is None


def test_names_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unused_steps, "MAX_NAME_BYTES", 6)
    kept = kept_by(2, "c", "ab", "éé", "d")
    assert kept.value is not None
    assert msgspec.json.decode(kept.value)["names"] == ["ab", "c", "d"]
    assert read_unused(kept, []) == ({"ab", "c", "d"}, 4)


def test_names_that_were_not_read_are_those_of_earlier_claims() -> None:
    kept = kept_by(3, "a", after="m")
    found = [step("b"), step("n"), step("o", epoch=3), step("p", epoch=2), step("#q"), kept]
    assert read_unused(kept, found) == ({"a", "n", "p"}, 3)


def test_only_the_run_that_ended_the_job_counts() -> None:
    records = [step("a"), kept_by(2, "a"), kept_by(4, "b")]
    assert unused_record(job(JobStatus.DONE, 4), records) == records[2]
    assert unused_record(job(JobStatus.DEAD, 2), records) == records[1]
    assert unused_record(job(JobStatus.CANCELLED, 5), records) is None
    for status in (JobStatus.PENDING, JobStatus.FAILED, JobStatus.SUSPENDED, JobStatus.RUNNING):
        assert unused_record(job(status, 4), records) is None
