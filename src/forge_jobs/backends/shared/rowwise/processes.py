"""The process contract of a row-wise store: registrations, leases, slot shares, leaderships."""

from collections.abc import Sequence

from msgspec import structs

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import Instant, after
from forge_jobs.core.shares import Part, share_out
from forge_jobs.store.processes import (
    Control,
    HeartbeatReply,
    NewProcess,
    ProcessRecord,
    ProcessSignature,
    ProcessStats,
    Share,
    SlotsInUse,
)

from . import finish, steps
from .exchange import cancels
from .rows import Process
from .storage import Storage
from .tables import Leadership, Tables


class RowwiseProcesses:
    """``ProcessStore`` row by row; see ``forge_jobs.store.processes``."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def _tables(self) -> Tables:
        return self._storage.tables

    async def register(self, process: NewProcess, *, replaces: str | None = None) -> int:
        with self._storage.write() as tx:
            processes = self._tables.processes
            for key, known in list(processes.items()):
                # A second registration under one host_id replaces the first.
                if known.registration.host_id in (replaces, process.host_id):
                    processes[key] = structs.replace(known, dead=True)
            key = self._tables.next_key("process")
            processes[key] = Process(key, process, tx.now, tx.now)
            return key

    async def heartbeat(self, key: int, stats: ProcessStats) -> HeartbeatReply:
        with self._storage.write() as tx:
            process = self._tables.processes.get(key)
            if process is None or process.dead:
                return HeartbeatReply(False, tx.now)
            self._tables.processes[key] = structs.replace(process, beat_at=tx.now, stats=stats)
            return HeartbeatReply(True, tx.now)

    async def deregister(self, key: int) -> None:
        with self._storage.write() as tx:
            rows = list(tx.load(self._tables.index.running(key)).values())
            steps.mark_found(tx, rows)
            for row in rows:
                finish.release(tx, row)
            tx.store(rows)
            self._tables.processes.pop(key, None)
            self._drop_shares()
            for name, lead in list(self._tables.leaderships.items()):
                if lead.process == key:
                    del self._tables.leaderships[name]

    async def remove_dead(self) -> int:
        with self._storage.write():
            owners = self._tables.index.owners()
            gone = [
                key
                for key, process in self._tables.processes.items()
                if process.dead and key not in owners
            ]
            for key in gone:
                del self._tables.processes[key]
            self._drop_shares()
            return len(gone)

    async def all(self) -> list[ProcessRecord]:
        with self._storage.read() as now:
            return sorted(
                (self._record(process) for process in self._alive(now)),
                key=lambda record: record.host_id,
            )

    async def signatures(self, kind: str) -> list[ProcessSignature]:
        with self._storage.read() as now:
            return [
                ProcessSignature(each.key, each.registration.queues, signature)
                for each in sorted(self._alive(now), key=lambda process: process.key)
                if (signature := each.registration.signatures.get(kind)) is not None
            ]

    async def control(self, key: int) -> Control:
        with self._storage.read():
            process = self._tables.processes.get(key)
            return Control(
                self._tables.control_version,
                cancels(self._tables, key),
                process is not None and process.quiet,
            )

    async def quiet(self, host_id: str, *, quiet: bool) -> None:
        with self._storage.write() as tx:
            named = [each for each in self._alive(tx.now) if each.registration.host_id == host_id]
            if not named:
                raise NotFound(f"no living worker process has the host_id {host_id!r}")
            for process in named:
                self._tables.processes[process.key] = structs.replace(process, quiet=quiet)
            tx.raise_control_version()

    async def share(self, *, max_slots: int) -> int:
        with self._storage.write() as tx:
            self._drop_shares()
            changed = 0
            for config in list(self._tables.queues.values()):
                parts = self._parts(config.name, tx.now)
                for part in share_out(config.slots, parts, max_slots=max_slots):
                    self._grant(config.name, part)
                    changed += 1
            if changed:
                tx.raise_control_version()
            return changed

    async def release_slots(self, key: int, in_use: Sequence[SlotsInUse]) -> int:
        with self._storage.write():
            freed = 0
            for entry in in_use:
                share = self._tables.shares.get((key, entry.queue))
                if share is None or share.version != entry.version:
                    continue
                held = min(share.held, max(share.slots, entry.running))
                freed += share.held - held
                self._tables.shares[key, entry.queue] = structs.replace(share, held=held)
            return freed

    async def next_expiry(self) -> Instant | None:
        with self._storage.read() as now:
            return min((process.expires_at for process in self._alive(now)), default=None)

    async def lead(self, name: str, key: int, *, ttl_s: float) -> bool:
        with self._storage.write() as tx:
            now = tx.now
            lead = self._tables.leaderships.get(name)
            # A lease that ends later than two ttl_s from now dates from before the clock was set
            # back, and does not count.
            latest = after(now, 2 * ttl_s)
            taken = lead is not None and lead.process != key and now < lead.until <= latest
            if taken or not self._tables.alive(key, now):
                return False
            self._tables.leaderships[name] = Leadership(key, after(now, ttl_s))
            return True

    async def release_lead(self, name: str, key: int) -> None:
        with self._storage.write():
            lead = self._tables.leaderships.get(name)
            if lead is not None and lead.process == key:
                del self._tables.leaderships[name]

    def _alive(self, now: Instant) -> list[Process]:
        return [process for process in self._tables.processes.values() if process.alive(now)]

    def _record(self, process: Process) -> ProcessRecord:
        shares = self._tables.shares
        mine = {queue: share for (key, queue), share in shares.items() if key == process.key}
        return structs.replace(process.record(), shares=mine)

    def _parts(self, queue: str, now: Instant) -> list[Part]:
        parts: list[Part] = []
        for key, process in self._tables.processes.items():
            share = self._tables.shares.get((key, queue))
            wants = (
                process.alive(now) and not process.quiet and queue in process.registration.queues
            )
            if share is not None:
                part = Part(key, process.registration.host_id, wants, share.slots, share.held)
                parts.append(part)
            elif wants:
                parts.append(Part(key, process.registration.host_id, wants))
        return parts

    def _grant(self, queue: str, part: Part) -> None:
        known = self._tables.shares.get((part.process, queue))
        version = 1 if known is None else known.version + 1
        self._tables.shares[part.process, queue] = Share(part.slots, part.held, version)

    def _drop_shares(self) -> None:
        """Delete the shares of processes that are gone, or dead without a running job."""
        tables = self._tables
        for key, queue in list(tables.shares):
            process = tables.processes.get(key)
            if process is None or (process.dead and not tables.index.running(key)):
                del tables.shares[key, queue]
