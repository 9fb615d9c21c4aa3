"""Records the version of this worker, so that charts can mark when it appeared."""

from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.settings import SettingStore
from forge_jobs.store.worker_versions import record_version

_EVERY_S = 6 * 3_600.0


class VersionReport:
    """Runs in every process, at its start and then rarely: a version that still runs is kept."""

    name = "version-report"
    runs_on = RunsOn.EVERY_PROCESS

    def __init__(self, settings: SettingStore, version: str) -> None:
        self._settings = settings
        self._version = version

    async def tick(self) -> Next:
        """Record it once."""
        await record_version(self._settings, self._version)
        return Next.after(_EVERY_S)
