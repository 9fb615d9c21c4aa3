"""Settings of queues, and the kinds that workers publish: the rules, over the settings contract.

Every change made here raises the control version.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Final

from msgspec import UNSET, Struct, UnsetType, structs

from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.instant import Instant
from forge_jobs.core.names import queue_name
from forge_jobs.core.throttle import OPEN, Gate

from .limits import LimitStore
from .settings import KIND, QUEUE, SettingStore, TypedSettings

_MAX_SLOTS: Final = 100_000


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
    """New values for some settings. UNSET leaves a setting as it is.

    >>> QueueChange(slots=4, paused=False).slots
    4
    """

    slots: int | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    retain_done_s: float | UnsetType | None = UNSET
    retain_dead_s: float | UnsetType | None = UNSET
    retain_cancelled_s: float | UnsetType | None = UNSET
    backoff_enabled: bool | UnsetType = UNSET
    backoff_base_s: float | UnsetType = UNSET
    backoff_max_s: float | UnsetType = UNSET


class PublishedKind(Struct, frozen=True):
    """The queue of a kind, as a worker published it."""

    kind: str
    queue: str


class Queues:
    """The queues of a store."""

    def __init__(self, settings: SettingStore, limits: LimitStore) -> None:
        self._queues = TypedSettings(settings, QUEUE, QueueConfig)
        self._kinds = TypedSettings(settings, KIND, PublishedKind)
        self._limits = limits

    async def ensure(self, name: str, *, slots: int) -> QueueConfig:
        """The settings of a queue. Created with that many slots if absent, never overwritten."""

        def create(known: QueueConfig | None, now: Instant) -> QueueConfig | None:
            if known is not None:
                return None
            return _checked(QueueConfig(name=name, slots=slots, updated_at=now))

        # Read first: every start of a worker comes here, and almost all find the queue.
        config = await self._queues.get(name) or await self._queues.update(name, create)
        return await self._with_gate(config)

    async def get(self, name: str) -> QueueConfig | None:
        """The settings of one queue; None without any."""
        config = await self._queues.get(name)
        return None if config is None else await self._with_gate(config)

    async def all(self) -> list[QueueConfig]:
        """All queues with settings, by name."""
        configs, gates = await self._queues.all(), await self._limits.gates()
        return [structs.replace(one, gate=gates.get(one.name, OPEN)) for one in configs]

    async def change(self, name: str, change: QueueChange) -> QueueConfig:
        """Change settings; the settings afterwards. NotFound for an unknown queue. BadOption for a
        value outside its range: slots 0–100,000, seconds not negative, back-off base not above its
        max."""
        fields = structs.asdict(change)
        given = {field: value for field, value in fields.items() if value is not UNSET}

        def changed(known: QueueConfig | None, now: Instant) -> QueueConfig:
            if known is None:
                raise _not_found(name)
            return _checked(structs.replace(known, **given, updated_at=now))

        return await self._with_gate(await self._queues.update(name, changed))

    async def open_gate(self, name: str) -> None:
        """Open the throttle gate: claims resume at once. NotFound for an unknown queue."""
        if await self._queues.get(name) is None:
            raise _not_found(name)
        await self._limits.open_gate(name)

    async def forget(self, name: str) -> None:
        """Delete the settings of a queue. Its jobs stay. NotFound for an unknown queue."""
        if not await self._queues.delete(name):
            raise _not_found(name)

    async def publish(self, kinds: Mapping[str, str]) -> None:
        """Store which queue each kind belongs to. The last write wins. Nothing is written when
        nothing changes."""
        known = await self.kinds()
        fresh = {kind: queue for kind, queue in kinds.items() if known.get(kind) != queue}
        if fresh:
            changes = {kind: partial(_published, kind, queue) for kind, queue in fresh.items()}
            await self._kinds.update_many(changes)

    async def kinds(self) -> dict[str, str]:
        """All published kinds with their queues."""
        return {one.kind: one.queue for one in await self._kinds.all()}

    async def _with_gate(self, config: QueueConfig) -> QueueConfig:
        gates = await self._limits.gates()
        return structs.replace(config, gate=gates.get(config.name, OPEN))


def _published(
    kind: str, queue: str, known: PublishedKind | None, _: Instant
) -> PublishedKind | None:
    return None if known is not None and known.queue == queue else PublishedKind(kind, queue)


def _not_found(name: str) -> NotFound:
    return NotFound(f"queue {name!r} has no settings: declare it on a worker or create it")


def _checked(config: QueueConfig) -> QueueConfig:
    queue_name(config.name)
    if not 0 <= config.slots <= _MAX_SLOTS:
        raise BadOption(f"slots={config.slots} of a queue must lie between 0 and {_MAX_SLOTS:,}")
    spans = {
        "retain_done_s": config.retain_done_s,
        "retain_dead_s": config.retain_dead_s,
        "retain_cancelled_s": config.retain_cancelled_s,
        "backoff_base_s": config.backoff_base_s,
        "backoff_max_s": config.backoff_max_s,
    }
    for field, span in spans.items():
        if span is not None and not span >= 0:
            raise BadOption(f"{field}={span} of a queue must not be negative")
        if span == math.inf:
            raise BadOption(f"{field}={span} of a queue must be finite; None keeps jobs for ever")
    if config.backoff_base_s > config.backoff_max_s:
        raise BadOption(
            f"backoff_base_s={config.backoff_base_s} of a queue is above "
            f"backoff_max_s={config.backoff_max_s}: raise the one or lower the other"
        )
    return config
