"""Which workers there were, and when each version was first seen, also after they have gone.

A setting per version and per owner key, which expires when no worker has reported it for a month.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from forge_jobs.core.instant import Instant

from .settings import Setting, SettingStore

NAMESPACE: Final = "worker_version"
KEPT_S: Final = 31 * 86_400.0
WORKERS: Final = "worker"
MAX_VERSIONS: Final = 200
MAX_WORKERS: Final = 2_000
_MAX_NAME: Final = 100


class WorkerVersion(Struct, frozen=True, kw_only=True):
    """A version, and when its first worker started."""

    version: str
    first_at: Instant


class KnownWorker(Struct, frozen=True, kw_only=True):
    """The name and the version of a worker process."""

    label: str
    version: str


_decode = msgspec.json.Decoder(WorkerVersion).decode
_worker_of = msgspec.json.Decoder(KnownWorker).decode


async def record_version(settings: SettingStore, version: str) -> None:
    """Note that a worker of this version runs. The first time is kept."""

    def change(current: Setting | None, now: Instant) -> bytes:
        if current is not None:
            return current.value
        return msgspec.json.encode(WorkerVersion(version=version, first_at=now))

    await settings.update(NAMESPACE, {version[:_MAX_NAME]: change}, ttl_s=KEPT_S)
    await settings.trim(NAMESPACE, keep=MAX_VERSIONS)


async def record_worker(settings: SettingStore, owner: int, *, label: str, version: str) -> None:
    """Note who a worker process is, by its owner key."""
    value = msgspec.json.encode(KnownWorker(label=label, version=version))
    await settings.put(WORKERS, str(owner), value, ttl_s=KEPT_S)
    await settings.trim(WORKERS, keep=MAX_WORKERS)


async def known_workers(settings: SettingStore, owners: Iterable[int]) -> dict[int, KnownWorker]:
    """Those of these workers that are known."""
    found: dict[int, KnownWorker] = {}
    for owner in dict.fromkeys(owners):
        setting = await settings.get(WORKERS, str(owner))
        if setting is not None:
            found[owner] = _worker_of(setting.value)
    return found


async def worker_versions(settings: SettingStore) -> list[WorkerVersion]:
    """All known versions, the oldest first."""
    found = [_decode(one.value) for one in await settings.all(NAMESPACE)]
    return sorted(found, key=lambda one: (one.first_at, one.version))
