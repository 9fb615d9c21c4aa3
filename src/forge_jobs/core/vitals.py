"""Samples of worker processes per minute: resources used, and round trips to the store."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from .histogram import EMPTY, Histogram, merged
from .instant import Instant


class Vitals(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sample of one process and minute (``at`` is its start).

    ``cpu_s`` is the processor time used (including child processes that ended), ``span_s`` the time
    observed; their quotient is the number of cores in use. Memory is the maximum. Disk bytes are
    those the process itself read and wrote (0 where the system does not report them),
    ``disk_share`` is the used part of its file system. ``exchange`` has the round trips to the
    store, ``errors`` counts those that failed.
    """

    at: Instant
    host_id: str
    label: str = ""
    cpu_s: float = 0.0
    span_s: float = 0.0
    memory_bytes: int = 0
    disk_read_bytes: int = 0
    disk_write_bytes: int = 0
    disk_share: float = 0.0
    running: int = 0
    exchange: Histogram = EMPTY
    errors: int = 0

    @property
    def cores(self) -> float | None:
        """The average number of cores in use."""
        return self.cpu_s / self.span_s if self.span_s > 0 else None


# The minute of the sample that sums all processes over all time. Its numbers never decrease.
LIFETIME: Final = -1


def lifetime_part(sample: Vitals) -> Vitals:
    """What a sample adds to the sample of the minute ``LIFETIME``, which is never purged."""
    return Vitals(at=LIFETIME, host_id="", exchange=sample.exchange, errors=sample.errors)


def merge_vitals(samples: Sequence[Vitals]) -> Vitals:
    """Several samples of one process and minute as one."""
    last = samples[-1]
    return Vitals(
        at=last.at,
        host_id=last.host_id,
        label=last.label,
        cpu_s=sum(sample.cpu_s for sample in samples),
        span_s=sum(sample.span_s for sample in samples),
        memory_bytes=max(sample.memory_bytes for sample in samples),
        disk_read_bytes=sum(sample.disk_read_bytes for sample in samples),
        disk_write_bytes=sum(sample.disk_write_bytes for sample in samples),
        disk_share=last.disk_share,
        running=max(sample.running for sample in samples),
        exchange=merged(sample.exchange for sample in samples),
        errors=sum(sample.errors for sample in samples),
    )
