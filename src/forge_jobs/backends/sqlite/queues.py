"""The queue contract on SQLite: settings, gates, and the kinds that workers publish."""

import sqlite3
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from msgspec import UNSET, structs

from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.throttle import OPEN, Gate
from forge_jobs.store.queues import QueueChange, QueueConfig

from .io.reader import Reader
from .io.transaction import Tx
from .io.writer import Writer

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "queues.sql")
_MAX_SLOTS: Final = 100_000


class SqliteQueues:
    """Stores queue settings; see ``forge_jobs.store.queues`` for the contract of each method."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def ensure(self, name: str, *, slots: int) -> QueueConfig:
        known = await self.get(name)
        if known is not None:
            return known
        return await self._writer.call(partial(_ensure, name, slots))

    async def get(self, name: str) -> QueueConfig | None:
        return await self._reader.call(lambda connection: read(connection.execute, name))

    async def all(self) -> list[QueueConfig]:
        return await self._reader.call(_all)

    async def change(self, name: str, change: QueueChange) -> QueueConfig:
        return await self._writer.call(partial(_change, name, change))

    async def open_gate(self, name: str) -> None:
        await self._writer.call(partial(_open_gate, name))

    async def forget(self, name: str) -> None:
        await self._writer.call(partial(_delete, name))

    async def publish(self, kinds: Mapping[str, str]) -> None:
        known = await self.kinds()
        fresh = {kind: queue for kind, queue in kinds.items() if known.get(kind) != queue}
        if fresh:
            await self._writer.call(partial(_publish, fresh))

    async def kinds(self) -> dict[str, str]:
        return await self._reader.call(_kinds)


def read(execute: Any, name: str) -> QueueConfig | None:
    """The settings of one queue."""
    found = execute(SQL["queue"], (name,)).fetchone()
    return None if found is None else _config(found)


def _ensure(name: str, slots: int, tx: Tx) -> QueueConfig:
    known = read(tx.execute, name)
    if known is not None:
        return known
    config = QueueConfig(name=name, slots=slots, updated_at=tx.now)
    _check(config)
    tx.execute(SQL["ensure_queue"], _values(config))
    tx.raise_control_version()
    return _require(tx, name)


def _change(name: str, change: QueueChange, tx: Tx) -> QueueConfig:
    fields = structs.asdict(change)
    changes = {field: value for field, value in fields.items() if value is not UNSET}
    config = structs.replace(_require(tx, name), **changes, updated_at=tx.now)
    _check(config)
    tx.execute(SQL["set_queue"], _values(config))
    tx.raise_control_version()
    return config


def _open_gate(name: str, tx: Tx) -> None:
    _require(tx, name)
    tx.set_gate(name, OPEN)
    tx.raise_control_version()


def _delete(name: str, tx: Tx) -> None:
    _require(tx, name)
    tx.execute(SQL["delete_queue"], (name,))
    tx.set_gate(name, OPEN)
    tx.raise_control_version()


def _publish(kinds: Mapping[str, str], tx: Tx) -> None:
    for kind, queue in kinds.items():
        tx.execute(SQL["publish_kind"], (kind, queue))
    tx.raise_control_version()


def _require(tx: Tx, name: str) -> QueueConfig:
    config = read(tx.execute, name)
    if config is None:
        raise NotFound(f"queue {name!r} has no settings: declare it on a worker or create it")
    return config


def _all(connection: sqlite3.Connection) -> list[QueueConfig]:
    return [_config(row) for row in connection.execute(SQL["queues"]).fetchall()]


def _kinds(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute(SQL["kinds"]).fetchall())


def _config(row: tuple[Any, ...]) -> QueueConfig:
    name, slots, paused, done, dead, cancelled, enabled, base, maximum, updated, until, count = row
    return QueueConfig(
        name=name,
        slots=slots,
        paused=bool(paused),
        retain_done_s=done,
        retain_dead_s=dead,
        retain_cancelled_s=cancelled,
        backoff_enabled=bool(enabled),
        backoff_base_s=base,
        backoff_max_s=maximum,
        gate=OPEN if count is None else Gate(until, count),
        updated_at=updated,
    )


def _values(config: QueueConfig) -> tuple[object, ...]:
    return (
        config.name, config.slots, config.paused, config.retain_done_s, config.retain_dead_s,
        config.retain_cancelled_s, config.backoff_enabled, config.backoff_base_s,
        config.backoff_max_s, config.updated_at,
    )  # fmt: skip


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
