"""The settings contract on memory."""

from collections.abc import Mapping
from typing import Any

from forge_jobs.backends.shared.setting_tables import TABLES, check_key, parse
from forge_jobs.core.instant import Instant, after
from forge_jobs.store.settings import LIMIT, STEERING, Change, Setting

from .limits import reapply
from .tables import Tables


class MemorySettings:
    """``SettingStore`` on memory; see ``forge_jobs.store.settings``."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def get(self, namespace: str, name: str) -> Setting | None:
        check_key(namespace, name)
        with self._tables.read() as now:
            return self._current(namespace, name, now)

    async def all(self, namespace: str) -> list[Setting]:
        with self._tables.read() as now:
            if namespace in TABLES:
                names = sorted(self._typed(namespace))
            else:
                names = sorted(name for each, name in self._tables.settings if each == namespace)
            found = (self._current(namespace, name, now) for name in names)
            return [setting for setting in found if setting is not None]

    async def put(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        parsed = parse(namespace, name, value, ttl_s)
        with self._tables.write() as now:
            return self._write(namespace, name, parsed, ttl_s, now)

    async def update(
        self, namespace: str, changes: Mapping[str, Change], *, ttl_s: float | None = None
    ) -> dict[str, Setting | None]:
        for name in changes:
            check_key(namespace, name)
        with self._tables.write() as now:
            settings = {name: self._current(namespace, name, now) for name in changes}
            values = {name: change(settings[name], now) for name, change in changes.items()}
            # All of them before the first write: the one that is refused refuses all.
            parsed = {
                name: parse(namespace, name, value, ttl_s)
                for name, value in values.items()
                if value is not None
            }
            for name, new in parsed.items():
                settings[name] = self._write(namespace, name, new, ttl_s, now)
            return settings

    async def delete(self, namespace: str, name: str) -> bool:
        check_key(namespace, name)
        with self._tables.write() as now:
            existed = self._current(namespace, name, now) is not None
            if namespace in TABLES:
                self._typed(namespace).pop(name, None)
                owns = TABLES[namespace].owns
                if owns is not None:
                    getattr(self._tables, owns[0]).pop(name, None)
            else:
                self._tables.settings.pop((namespace, name), None)
            if existed and namespace in STEERING:
                self._tables.raise_control_version()
            return existed

    async def trim(self, namespace: str, *, keep: int) -> int:
        with self._tables.write():
            expiring = [
                (setting.until, key)
                for key, setting in self._tables.settings.items()
                if key[0] == namespace and setting.until is not None
            ]
            beyond = sorted(expiring, reverse=True)[max(keep, 0) :]
            return self._remove([key for _, key in beyond])

    async def purge(self, *, limit: int) -> int:
        with self._tables.write() as now:
            ended = [
                key
                for key, setting in self._tables.settings.items()
                if setting.until is not None and setting.until <= now
            ]
            return self._remove(ended[:limit])

    def _typed(self, namespace: str) -> dict[str, Any]:
        return getattr(self._tables, TABLES[namespace].name)

    def _current(self, namespace: str, name: str, now: Instant) -> Setting | None:
        if namespace in TABLES:
            struct = self._typed(namespace).get(name)
            return None if struct is None else TABLES[namespace].setting_of(struct)
        setting = self._tables.settings.get((namespace, name))
        over = setting is not None and setting.until is not None and setting.until <= now
        return None if over else setting

    def _write(
        self, namespace: str, name: str, parsed: Any, ttl_s: float | None, now: Instant
    ) -> Setting:
        if namespace in TABLES:
            self._typed(namespace)[name] = parsed
            setting = TABLES[namespace].setting_of(parsed)
        else:
            before = self._tables.settings.get((namespace, name))
            setting = Setting(
                name=name,
                value=parsed,
                version=1 if before is None else before.version + 1,
                until=None if ttl_s is None else after(now, ttl_s),
            )
            self._tables.settings[namespace, name] = setting
        if namespace in STEERING:
            self._tables.raise_control_version()
        if namespace == LIMIT:
            reapply(self._tables, name, now)
        return setting

    def _remove(self, keys: list[tuple[str, str]]) -> int:
        for key in keys:
            del self._tables.settings[key]
        return len(keys)
