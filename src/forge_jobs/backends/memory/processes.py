"""The process contract on memory: who is alive, who leads, what operators asked of them."""

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import Instant, after
from forge_jobs.store.processes import Beat, Control, NewProcess, ProcessRecord, Pulse

from . import claims
from .exchange import cancels
from .rows import Process
from .tables import Lead, Tables


class MemoryProcesses:
    """Who is alive; see ``forge_jobs.store.processes`` for what each method promises."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def register(self, process: NewProcess, *, replaces: str | None = None) -> int:
        with self._tables.change() as now:
            for known in self._tables.processes.values():
                # Whoever registers again under its own name is not its former self any more.
                if known.told.host_id in (replaces, process.host_id):
                    known.dead = True
            self._tables.last_process += 1
            key = self._tables.last_process
            self._tables.processes[key] = Process(key, process, now, now)
            return key

    async def beat(self, key: int, pulse: Pulse) -> Beat:
        with self._tables.change() as now:
            process = self._tables.processes.get(key)
            if process is None or process.dead:
                return Beat(False, now)
            process.beat_at, process.pulse = now, pulse
            return Beat(True, now)

    async def leave(self, key: int) -> None:
        with self._tables.change() as now:
            for job in list(self._tables.lines.running.get(key, ())):
                claims.release(self._tables, self._tables.jobs[job], now)
            self._tables.processes.pop(key, None)
            for name in [name for name, lead in self._tables.leads.items() if lead.process == key]:
                del self._tables.leads[name]

    async def bury(self) -> int:
        with self._tables.change():
            gone = [
                key
                for key, process in self._tables.processes.items()
                if process.dead and key not in self._tables.lines.running
            ]
            for key in gone:
                del self._tables.processes[key]
            return len(gone)

    async def all(self) -> list[ProcessRecord]:
        with self._tables.look() as now:
            return sorted(
                (process.record() for process in self._living(now)),
                key=lambda record: record.host_id,
            )

    async def control(self, key: int) -> Control:
        with self._tables.look():
            process = self._tables.processes.get(key)
            return Control(
                self._tables.control_version,
                cancels(self._tables, key),
                process is not None and process.quiet,
            )

    async def quiet(self, host_id: str, *, quiet: bool) -> None:
        with self._tables.change() as now:
            named = [known for known in self._living(now) if known.told.host_id == host_id]
            if not named:
                raise NotFound(f"no living worker process has the host_id {host_id!r}")
            for process in named:
                process.quiet = quiet
            self._tables.operated()

    async def next_expiry(self) -> Instant | None:
        with self._tables.look() as now:
            return min((process.expires_at for process in self._living(now)), default=None)

    async def lead(self, name: str, key: int, *, ttl_s: float) -> bool:
        with self._tables.change() as now:
            lead = self._tables.leads.get(name)
            taken = lead is not None and lead.process != key and lead.until > now
            if taken or not self._tables.alive(key, now):
                return False
            self._tables.leads[name] = Lead(key, after(now, ttl_s))
            return True

    async def yield_lead(self, name: str, key: int) -> None:
        with self._tables.change():
            lead = self._tables.leads.get(name)
            if lead is not None and lead.process == key:
                del self._tables.leads[name]

    def _living(self, now: Instant) -> list[Process]:
        return [process for process in self._tables.processes.values() if process.alive(now)]
