"""The queue contract on Postgres: what operators set, and what workers publish about kinds."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET, structs

from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.throttle import OPEN, Gate
from forge_jobs.store.queues import QueueChange, QueueConfig

from . import sql_files
from .connection.driver import Row
from .connection.server import Link, Server
from .notify.notifier import EVERYBODY, Notifier

_MAX_SLOTS: Final = 100_000


class PostgresQueues:
    """What operators set; see ``forge_jobs.store.queues`` for what each method promises."""

    def __init__(self, server: Server, bell: Notifier) -> None:
        self._server = server
        self._bell = bell
        self._sql = sql_files.statements("queues", server.address.schema)

    async def ensure(self, name: str, *, slots: int) -> QueueConfig:
        fresh = QueueConfig(name=name, slots=slots)
        _check(fresh)

        async def work(link: Link) -> tuple[QueueConfig, bool]:
            now = self._server.present.bind()
            known = await link.row(self._sql["one"], name)
            if known is not None:
                return _config(known), False
            made = bool(await link.fetch(self._sql["create"], now, *_values(fresh)))
            if made:
                await link.fetch(self._sql["raise_control_version"])
            row = await link.row(self._sql["one"], name)
            # Created and removed by others meanwhile: what was asked for is still the answer.
            return fresh if row is None else _config(row), made

        config, made = await self._server.within(work)
        await self._bell.notify([EVERYBODY] if made else [])
        return config

    async def get(self, name: str) -> QueueConfig | None:
        row = await self._server.ask_row(self._sql["one"], name, writes=False)
        return None if row is None else _config(row)

    async def all(self) -> list[QueueConfig]:
        return [_config(row) for row in await self._server.ask(self._sql["all"], writes=False)]

    async def change(self, name: str, change: QueueChange) -> QueueConfig:
        asked = structs.asdict(change)
        given = {field: value for field, value in asked.items() if value is not UNSET}

        async def work(link: Link) -> QueueConfig:
            now = self._server.present.bind()
            known = await self._known(link, name)
            config = structs.replace(known, **given)
            _check(config)
            await link.fetch(self._sql["change"], now, *_values(config))
            await link.fetch(self._sql["raise_control_version"])
            row = await link.row(self._sql["one"], name)
            assert row is not None
            return _config(row)

        return await self._operate(work)

    async def open_gate(self, name: str) -> None:
        async def work(link: Link) -> None:
            await self._known(link, name)
            await link.fetch(self._sql["open_gate"], name)
            await link.fetch(self._sql["raise_control_version"])

        await self._operate(work)

    async def forget(self, name: str) -> None:
        async def work(link: Link) -> None:
            await self._known(link, name)
            await link.fetch(self._sql["delete"], name)
            await link.fetch(self._sql["raise_control_version"])

        await self._operate(work)

    async def publish(self, kinds: Mapping[str, str]) -> None:
        if not kinds:
            return

        async def work(link: Link) -> bool:
            changed = await link.fetch(self._sql["publish"], list(kinds), list(kinds.values()))
            if changed:
                await link.fetch(self._sql["raise_control_version"])
            return bool(changed)

        if await self._server.within(work):
            await self._bell.notify([EVERYBODY])

    async def kinds(self) -> dict[str, str]:
        found = await self._server.ask(self._sql["kinds"], writes=False)
        return {row[0]: row[1] for row in found}

    async def _operate(self, work: Any) -> Any:
        answer = await self._server.within(work)
        await self._bell.notify([EVERYBODY])
        return answer

    async def _known(self, link: Link, name: str) -> QueueConfig:
        row = await link.row(self._sql["lock"], name)
        if row is None:
            raise NotFound(f"queue {name!r} has no settings: declare it on a worker or create it")
        return _settings(row, OPEN)


def _values(config: QueueConfig) -> tuple[Any, ...]:
    return (
        config.name, config.slots, config.paused, config.retain_done_s, config.retain_dead_s,
        config.retain_cancelled_s, config.backoff_enabled, config.backoff_base_s,
        config.backoff_max_s,
    )  # fmt: skip


def _config(row: Row) -> QueueConfig:
    return _settings(row, OPEN if row["until"] is None else Gate(row["until"], row["count"]))


def _settings(row: Row, gate: Gate) -> QueueConfig:
    return QueueConfig(
        name=row["name"],
        slots=row["slots"],
        paused=row["paused"],
        retain_done_s=row["retain_done_s"],
        retain_dead_s=row["retain_dead_s"],
        retain_cancelled_s=row["retain_cancelled_s"],
        backoff_enabled=row["backoff_enabled"],
        backoff_base_s=row["backoff_base_s"],
        backoff_max_s=row["backoff_max_s"],
        gate=gate,
        updated_at=row["updated_at"],
    )


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
