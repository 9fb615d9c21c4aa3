"""Unused steps: steps that are stored, and that the run that ended its job did not ask for. Their
code was renamed or removed, or the run went another way.

That run stores one internal step with their names beside its finish, if there are any.
"""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec
from msgspec import Struct

from .instant import Instant
from .job import JobRecord
from .status import is_terminal
from .steps import StepKind, StepRecord, StepWrite, is_internal

# So many bytes of names are kept; the others are counted.
MAX_NAME_BYTES: Final = 64 << 10
_PREFIX: Final = "###"


class UnusedSteps(Struct, frozen=True):
    """The value of the internal step. ``names`` are as stored, ``others`` counts those beyond the
    limit. ``after``: the run read no names after this one, so that it used none of them."""

    names: tuple[str, ...] = ()
    others: int = 0
    after: str | None = None


def unused_steps(names: Iterable[str], after: str | None = None) -> UnusedSteps | None:
    """What a run keeps of these names; None if there is nothing to keep."""
    ordered = sorted(names)
    if not ordered and after is None:
        return None
    size = kept = 0
    for name in ordered:
        size += len(name.encode())
        if size > MAX_NAME_BYTES:
            break
        kept += 1
    return UnusedSteps(tuple(ordered[:kept]), len(ordered) - kept, after)


def unused_write(key: int, epoch: int, at: Instant, unused: UnusedSteps) -> StepWrite:
    """The internal step of a run."""
    value = msgspec.json.encode(unused)
    return StepWrite(key, epoch, _name(epoch), StepKind.UNUSED, at, at, value)


def unused_record(job: JobRecord, records: Iterable[StepRecord]) -> StepRecord | None:
    """The internal step of the run that ended the job; None if it has none, or if the job has not
    ended, for then a later run may use what is stored."""
    if not is_terminal(job.status):
        return None
    name = _name(job.epoch)
    return next((one for one in records if one.name == name), None)


def read_unused(kept: StepRecord, records: Iterable[StepRecord]) -> tuple[Collection[str], int]:
    """The names of the unused steps among all of a job, and how many there are."""
    unused = msgspec.json.decode(kept.value or b"{}", type=UnusedSteps)
    names = set(unused.names)
    if unused.after is not None:
        names.update(
            one.name
            for one in records
            if one.name > unused.after and one.epoch < kept.epoch and not is_internal(one.name)
        )
    return names, len(names) + unused.others


def _name(epoch: int) -> str:
    return f"{_PREFIX}{epoch}"
