"""The settings contract of a row-wise store."""

from collections.abc import Mapping, MutableMapping
from typing import Any

from forge_jobs.backends.shared.setting_tables import TABLES, check_key, parse
from forge_jobs.core.instant import Instant, after
from forge_jobs.store.settings import LIMIT, STEERING, Change, Setting

from .limits import reapply
from .storage import Storage
from .tables import Tables
from .transaction import Transaction


class RowwiseSettings:
    """``SettingStore`` row by row; see ``forge_jobs.store.settings``."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def _tables(self) -> Tables:
        return self._storage.tables

    async def get(self, namespace: str, name: str) -> Setting | None:
        check_key(namespace, name)
        with self._storage.read() as now:
            return self._current(namespace, name, now)

    async def all(self, namespace: str) -> list[Setting]:
        with self._storage.read() as now:
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
        with self._storage.write() as tx:
            return self._write(tx, namespace, name, parsed, ttl_s)

    async def update(
        self, namespace: str, changes: Mapping[str, Change], *, ttl_s: float | None = None
    ) -> dict[str, Setting | None]:
        for name in changes:
            check_key(namespace, name)
        with self._storage.write() as tx:
            settings = {name: self._current(namespace, name, tx.now) for name in changes}
            values = {name: change(settings[name], tx.now) for name, change in changes.items()}
            # All of them before the first write: the one that is refused refuses all.
            parsed = {
                name: parse(namespace, name, value, ttl_s)
                for name, value in values.items()
                if value is not None
            }
            for name, new in parsed.items():
                settings[name] = self._write(tx, namespace, name, new, ttl_s)
            return settings

    async def delete(self, namespace: str, name: str) -> bool:
        check_key(namespace, name)
        with self._storage.write() as tx:
            existed = self._current(namespace, name, tx.now) is not None
            if namespace in TABLES:
                self._typed(namespace).pop(name, None)
                owns = TABLES[namespace].owns
                if owns is not None:
                    getattr(self._tables, owns[0]).pop(name, None)
            else:
                self._tables.settings.pop((namespace, name), None)
            if existed and namespace in STEERING:
                tx.raise_control_version()
            if existed and namespace == LIMIT:
                reapply(tx, name)
            return existed

    async def trim(self, namespace: str, *, keep: int) -> int:
        with self._storage.write():
            expiring = [
                (setting.until, key)
                for key, setting in self._tables.settings.items()
                if key[0] == namespace and setting.until is not None
            ]
            beyond = sorted(expiring, reverse=True)[max(keep, 0) :]
            return self._remove([key for _, key in beyond])

    async def purge(self, *, limit: int) -> int:
        with self._storage.write() as tx:
            ended = [
                key
                for key, setting in self._tables.settings.items()
                if setting.until is not None and setting.until <= tx.now
            ]
            return self._remove(ended[:limit])

    def _typed(self, namespace: str) -> MutableMapping[str, Any]:
        return getattr(self._tables, TABLES[namespace].name)

    def _current(self, namespace: str, name: str, now: Instant) -> Setting | None:
        if namespace in TABLES:
            struct = self._typed(namespace).get(name)
            return None if struct is None else TABLES[namespace].setting_of(struct)
        setting = self._tables.settings.get((namespace, name))
        over = setting is not None and setting.until is not None and setting.until <= now
        return None if over else setting

    def _write(
        self, tx: Transaction, namespace: str, name: str, parsed: Any, ttl_s: float | None
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
                until=None if ttl_s is None else after(tx.now, ttl_s),
            )
            self._tables.settings[namespace, name] = setting
        if namespace in STEERING:
            tx.raise_control_version()
        if namespace == LIMIT:
            reapply(tx, name)
        return setting

    def _remove(self, keys: list[tuple[str, str]]) -> int:
        for key in keys:
            del self._tables.settings[key]
        return len(keys)
