"""The queue contract of a row-wise store: settings of queues, and published kinds."""

from collections.abc import Mapping

from msgspec import UNSET, structs

from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.throttle import OPEN
from forge_jobs.store.queues import QueueChange, QueueConfig

from .storage import Storage
from .tables import Tables

_MAX_SLOTS = 100_000


class RowwiseQueues:
    """``QueueStore`` row by row; see ``forge_jobs.store.queues``."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def _tables(self) -> Tables:
        return self._storage.tables

    async def ensure(self, name: str, *, slots: int) -> QueueConfig:
        with self._storage.write() as tx:
            now = tx.now
            if name not in self._tables.queues:
                config = QueueConfig(name=name, slots=slots, updated_at=now)
                _check(config)
                self._tables.queues[name] = config
                tx.raise_control_version()
            return self._with_gate(name)

    async def get(self, name: str) -> QueueConfig | None:
        with self._storage.read():
            return self._with_gate(name) if name in self._tables.queues else None

    async def all(self) -> list[QueueConfig]:
        with self._storage.read():
            return [self._with_gate(name) for name in sorted(self._tables.queues)]

    async def change(self, name: str, change: QueueChange) -> QueueConfig:
        with self._storage.write() as tx:
            now = tx.now
            fields = structs.asdict(change)
            given = {field: value for field, value in fields.items() if value is not UNSET}
            config = structs.replace(self._known(name), **given, updated_at=now)
            _check(config)
            self._tables.queues[name] = config
            tx.raise_control_version()
            return self._with_gate(name)

    async def open_gate(self, name: str) -> None:
        with self._storage.write() as tx:
            self._known(name)
            self._tables.gates[name] = OPEN
            tx.raise_control_version()

    async def forget(self, name: str) -> None:
        with self._storage.write() as tx:
            self._known(name)
            del self._tables.queues[name]
            self._tables.gates.pop(name, None)
            tx.raise_control_version()

    async def publish(self, kinds: Mapping[str, str]) -> None:
        with self._storage.write() as tx:
            if any(self._tables.kinds.get(kind) != queue for kind, queue in kinds.items()):
                self._tables.kinds.update(kinds)
                tx.raise_control_version()

    async def kinds(self) -> dict[str, str]:
        with self._storage.read():
            return dict(sorted(self._tables.kinds.items()))

    def _known(self, name: str) -> QueueConfig:
        config = self._tables.queues.get(name)
        if config is None:
            raise NotFound(f"queue {name!r} has no settings: declare it on a worker or create it")
        return config

    def _with_gate(self, name: str) -> QueueConfig:
        return structs.replace(self._tables.queues[name], gate=self._tables.gate(name))


def _check(config: QueueConfig) -> None:
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
    if config.backoff_base_s > config.backoff_max_s:
        raise BadOption(
            f"backoff_base_s={config.backoff_base_s} of a queue is above "
            f"backoff_max_s={config.backoff_max_s}: raise the one or lower the other"
        )
