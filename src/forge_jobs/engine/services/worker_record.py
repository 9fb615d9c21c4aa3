"""Records who this worker is: attempts show its name after it has gone, charts mark its version."""

from collections.abc import Callable

from forge_jobs.kit.clock import Clock
from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.settings import SettingStore
from forge_jobs.store.worker_versions import record_version, record_worker

_EVERY_S = 60.0
_AGAIN_S = 6 * 3_600.0


class WorkerRecord:
    """Runs in every process: at its start, under a new owner key, and rarely otherwise, so that
    what still runs is kept."""

    name = "worker-record"
    runs_on = RunsOn.EVERY_PROCESS

    def __init__(
        self,
        settings: SettingStore,
        *,
        owner: Callable[[], int],
        label: Callable[[], str],
        version: str,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._owner = owner
        self._label = label
        self._version = version
        self._mono = clock.mono
        self._recorded: tuple[int, float] | None = None

    async def tick(self) -> Next:
        """Record it, if that is due."""
        owner, now = self._owner(), self._mono()
        if self._recorded is None or self._recorded[0] != owner or now > self._recorded[1]:
            await record_worker(self._settings, owner, label=self._label(), version=self._version)
            if self._version:
                await record_version(self._settings, self._version)
            self._recorded = (owner, now + _AGAIN_S)
        return Next.after(_EVERY_S)
