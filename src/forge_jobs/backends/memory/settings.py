"""The contract for settings on memory."""

from forge_jobs.core.instant import Instant, after
from forge_jobs.core.settings import check_name, check_setting
from forge_jobs.store.settings import Setting

from .tables import Tables


class MemorySettings:
    """Named values; see ``forge_jobs.store.settings`` for what each method promises."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def get(self, namespace: str, name: str) -> Setting | None:
        check_name(namespace, name)
        with self._tables.look() as now:
            return self._standing(namespace, name, now)

    async def put(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        check_setting(namespace, name, value, ttl_s)
        with self._tables.change() as now:
            return self._keep(namespace, name, value, ttl_s, now)

    async def put_if_absent(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        check_setting(namespace, name, value, ttl_s)
        with self._tables.change() as now:
            standing = self._standing(namespace, name, now)
            return standing or self._keep(namespace, name, value, ttl_s, now)

    async def delete(self, namespace: str, name: str) -> bool:
        check_name(namespace, name)
        with self._tables.change() as now:
            stood = self._standing(namespace, name, now) is not None
            self._tables.settings.pop((namespace, name), None)
            return stood

    async def trim(self, namespace: str, *, keep: int) -> int:
        with self._tables.change():
            ending = [
                (setting.until, place)
                for place, setting in self._tables.settings.items()
                if place[0] == namespace and setting.until is not None
            ]
            beyond = sorted(ending, reverse=True)[max(keep, 0) :]
            return self._remove([place for _, place in beyond])

    async def purge(self, *, limit: int) -> int:
        with self._tables.change() as now:
            ended = [
                place
                for place, setting in self._tables.settings.items()
                if setting.until is not None and setting.until <= now
            ]
            return self._remove(ended[:limit])

    def _standing(self, namespace: str, name: str, now: Instant) -> Setting | None:
        setting = self._tables.settings.get((namespace, name))
        over = setting is not None and setting.until is not None and setting.until <= now
        return None if over else setting

    def _keep(
        self, namespace: str, name: str, value: bytes, ttl_s: float | None, now: Instant
    ) -> Setting:
        before = self._tables.settings.get((namespace, name))
        kept = Setting(
            name=name,
            value=value,
            version=1 if before is None else before.version + 1,
            until=None if ttl_s is None else after(now, ttl_s),
        )
        self._tables.settings[namespace, name] = kept
        return kept

    def _remove(self, places: list[tuple[str, str]]) -> int:
        for place in places:
            del self._tables.settings[place]
        return len(places)
