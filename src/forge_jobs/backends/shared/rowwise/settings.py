"""The settings contract of a row-wise store."""

from forge_jobs.core.instant import Instant, after
from forge_jobs.core.settings import check_name, check_setting
from forge_jobs.store.settings import Setting

from .storage import Storage
from .tables import Tables


class RowwiseSettings:
    """``SettingStore`` of a row-wise store; see ``forge_jobs.store.settings``."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def _tables(self) -> Tables:
        return self._storage.tables

    async def get(self, namespace: str, name: str) -> Setting | None:
        check_name(namespace, name)
        with self._storage.read() as now:
            return self._current(namespace, name, now)

    async def put(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        check_setting(namespace, name, value, ttl_s)
        with self._storage.write() as tx:
            now = tx.now
            return self._write(namespace, name, value, ttl_s, now)

    async def put_if_absent(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        check_setting(namespace, name, value, ttl_s)
        with self._storage.write() as tx:
            now = tx.now
            current = self._current(namespace, name, now)
            return current or self._write(namespace, name, value, ttl_s, now)

    async def delete(self, namespace: str, name: str) -> bool:
        check_name(namespace, name)
        with self._storage.write() as tx:
            now = tx.now
            existed = self._current(namespace, name, now) is not None
            self._tables.settings.pop((namespace, name), None)
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
            now = tx.now
            ended = [
                key
                for key, setting in self._tables.settings.items()
                if setting.until is not None and setting.until <= now
            ]
            return self._remove(ended[:limit])

    def _current(self, namespace: str, name: str, now: Instant) -> Setting | None:
        setting = self._tables.settings.get((namespace, name))
        over = setting is not None and setting.until is not None and setting.until <= now
        return None if over else setting

    def _write(
        self, namespace: str, name: str, value: bytes, ttl_s: float | None, now: Instant
    ) -> Setting:
        before = self._tables.settings.get((namespace, name))
        setting = Setting(
            name=name,
            value=value,
            version=1 if before is None else before.version + 1,
            until=None if ttl_s is None else after(now, ttl_s),
        )
        self._tables.settings[namespace, name] = setting
        return setting

    def _remove(self, keys: list[tuple[str, str]]) -> int:
        for key in keys:
            del self._tables.settings[key]
        return len(keys)
