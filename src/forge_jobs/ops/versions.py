"""When each version of the workers was first seen."""

from datetime import datetime

from forge_jobs.core.instant import to_datetime
from forge_jobs.store import worker_versions as stored
from forge_jobs.store.store import Store

from .views import View


class VersionView(View, frozen=True, kw_only=True):
    """A version of the workers (``FORGE_WORKER_VERSION``), and when its first worker started."""

    version: str
    first_at: datetime


async def worker_versions(store: Store) -> tuple[VersionView, ...]:
    """All versions that ran within the last month, the oldest first."""
    return tuple(
        VersionView(version=one.version, first_at=to_datetime(one.first_at))
        for one in await stored.worker_versions(store.settings)
    )
