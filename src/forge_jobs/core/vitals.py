"""How a worker process fared within one minute: what it used, and how its store answered."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from .histogram import EMPTY, Histogram, merged
from .instant import Instant


class Vitals(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process, one minute (``at`` is its start).

    ``cpu_s`` is processor time used (with its child processes that ended), ``span_s`` the time it
    was watched for: their quotient is the cores in use. Memory is the highest seen. Disk bytes are
    what the process read and wrote itself (0 where the system does not tell), ``disk_share`` the
    used part of the file system it works in. ``exchange`` holds the round trips to the store,
    ``errors`` those that failed.
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
        """How many cores it kept busy on average."""
        return self.cpu_s / self.span_s if self.span_s > 0 else None


# Under this minute the store keeps what grows only, of all processes together.
LIFETIME: Final = -1


def lifetime_part(told: Vitals) -> Vitals:
    """What a report adds to the store's own row, which no clean-up removes."""
    return Vitals(at=LIFETIME, host_id="", exchange=told.exchange, errors=told.errors)


def merge_vitals(parts: Sequence[Vitals]) -> Vitals:
    """Several reports about one process and minute as one."""
    last = parts[-1]
    return Vitals(
        at=last.at,
        host_id=last.host_id,
        label=last.label,
        cpu_s=sum(part.cpu_s for part in parts),
        span_s=sum(part.span_s for part in parts),
        memory_bytes=max(part.memory_bytes for part in parts),
        disk_read_bytes=sum(part.disk_read_bytes for part in parts),
        disk_write_bytes=sum(part.disk_write_bytes for part in parts),
        disk_share=last.disk_share,
        running=max(part.running for part in parts),
        exchange=merged(part.exchange for part in parts),
        errors=sum(part.errors for part in parts),
    )
