"""The contract for settings of queues, and for the kinds that workers publish.

Every change made here raises the control version.
"""

from collections.abc import Mapping
from typing import Protocol

from msgspec import UNSET, Struct, UnsetType

from forge_jobs.core.instant import Instant
from forge_jobs.core.throttle import Gate


class QueueConfig(Struct, frozen=True, kw_only=True):
    """The settings of a queue. ``slots`` is a total over the cluster. Retention None: for ever."""

    name: str
    slots: int = 10
    paused: bool = False
    retain_done_s: float | None = 7 * 86_400.0
    retain_dead_s: float | None = 30 * 86_400.0
    retain_cancelled_s: float | None = 7 * 86_400.0
    backoff_enabled: bool = False
    backoff_base_s: float = 15.0
    backoff_max_s: float = 3_600.0
    gate: Gate = Gate()
    updated_at: Instant = 0


class QueueChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """New values for some settings. UNSET leaves a setting as it is."""

    slots: int | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    retain_done_s: float | UnsetType | None = UNSET
    retain_dead_s: float | UnsetType | None = UNSET
    retain_cancelled_s: float | UnsetType | None = UNSET
    backoff_enabled: bool | UnsetType = UNSET
    backoff_base_s: float | UnsetType = UNSET
    backoff_max_s: float | UnsetType = UNSET


class QueueStore(Protocol):
    """The contract for settings of queues and published kinds."""

    async def ensure(self, name: str, *, slots: int) -> QueueConfig:
        """The settings of a queue. Created with that many slots if absent, never overwritten."""
        ...

    async def get(self, name: str) -> QueueConfig | None:
        """The settings of one queue; None without any."""
        ...

    async def all(self) -> list[QueueConfig]:
        """All queues with settings, by name."""
        ...

    async def change(self, name: str, change: QueueChange) -> QueueConfig:
        """Change settings; the settings afterwards. NotFound for an unknown queue. BadOption for a
        value outside its range: slots 0–100,000, seconds not negative, back-off base not above its
        max."""
        ...

    async def open_gate(self, name: str) -> None:
        """Open the throttle gate: claims resume at once. NotFound for an unknown queue."""
        ...

    async def forget(self, name: str) -> None:
        """Delete the settings of a queue. Its jobs stay. NotFound for an unknown queue."""
        ...

    async def publish(self, kinds: Mapping[str, str]) -> None:
        """Store which queue each kind belongs to. The last write wins."""
        ...

    async def kinds(self) -> dict[str, str]:
        """All published kinds with their queues."""
        ...
