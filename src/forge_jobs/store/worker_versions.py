"""When each version of the workers was first seen, so that charts can mark deploys.

A setting per version, which expires when no worker has reported the version for a month.
"""

from typing import Final

import msgspec
from msgspec import Struct

from forge_jobs.core.instant import Instant

from .settings import Setting, SettingStore

NAMESPACE: Final = "worker_version"
KEPT_S: Final = 31 * 86_400.0
MAX_VERSIONS: Final = 200
_MAX_NAME: Final = 100


class WorkerVersion(Struct, frozen=True, kw_only=True):
    """A version, and when its first worker started."""

    version: str
    first_at: Instant


_decode = msgspec.json.Decoder(WorkerVersion).decode


async def record_version(settings: SettingStore, version: str) -> None:
    """Note that a worker of this version runs. The first time is kept."""

    def change(current: Setting | None, now: Instant) -> bytes:
        if current is not None:
            return current.value
        return msgspec.json.encode(WorkerVersion(version=version, first_at=now))

    await settings.update(NAMESPACE, {version[:_MAX_NAME]: change}, ttl_s=KEPT_S)
    await settings.trim(NAMESPACE, keep=MAX_VERSIONS)


async def worker_versions(settings: SettingStore) -> list[WorkerVersion]:
    """All known versions, the oldest first."""
    found = [_decode(one.value) for one in await settings.all(NAMESPACE)]
    return sorted(found, key=lambda one: (one.first_at, one.version))
