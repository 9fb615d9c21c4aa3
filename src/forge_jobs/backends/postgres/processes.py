"""The process contract on Postgres: registrations, heartbeats, leadership, slot shares, control.

Heartbeats, leaderships and the control poll use the connection that listens, if there is one on the
same event loop: a process must not lose its lease because other calls occupy the pool.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import structs

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import Instant
from forge_jobs.core.kind_signature import KindSignature
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

from . import liveness_socket, rows, sql_files
from .connection.driver import Row
from .connection.server import Link, Server
from .liveness_socket import LivenessSocket
from .notify.claim_turns import ClaimTurns
from .notify.notifier import EVERYBODY, Notifier

_signature_of: Final = msgspec.json.Decoder(KindSignature).decode
_slots: Final = msgspec.json.Decoder(dict[str, int])
_shares: Final = msgspec.json.Decoder(dict[str, tuple[int, int, int]])


class PostgresProcesses:
    """Worker processes; see ``forge_jobs.store.processes`` for the contract of each method."""

    def __init__(self, server: Server, notifier: Notifier, turns: ClaimTurns) -> None:
        self._server = server
        self._notifier = notifier
        self._turns = turns
        self._liveness: dict[int, LivenessSocket] = {}
        # When a process that has ended may be declared dead.
        self._silent_at: Instant | None = None
        self._sql = sql_files.statements("processes", server.address.schema)
        self._store_now = sql_files.statements("jobs", server.address.schema)["store_now"]
        self._raise_control_version = sql_files.statements("bulk", server.address.schema)[
            "raise_control_version"
        ]

    async def register(self, process: NewProcess, *, replaces: str | None = None) -> int:
        # Bound before the row exists: nobody can find the name free while the process lives.
        liveness = LivenessSocket(self._server.entropy)
        row = await self._server.ask_row(
            self._sql["register"], self._server.store_clock.bind(), process.host_id,
            rows.storable(process.label), process.queues, process.pid,
            rows.storable(process.hostname), rows.storable(process.version), process.lease_s,
            replaces, rows.as_json(dict(process.signatures)), liveness.machine,
        )  # fmt: skip
        assert row is not None
        self._turns.add_process(row["id"])
        self._liveness[row["id"]] = liveness
        return row["id"]

    async def heartbeat(self, key: int, stats: ProcessStats) -> HeartbeatReply:
        [row] = await self._server.ask_urgent(
            self._sql["heartbeat"], self._server.store_clock.bind(), key, stats.running,
            rows.as_json(dict(stats.slots)), stats.memory_bytes, stats.cores,
            stats.disk_share,
        )  # fmt: skip
        if not row["alive"]:
            self._close_liveness(key)
        return HeartbeatReply(row["alive"], row["now"])

    async def deregister(self, key: int) -> None:
        async def work(link: Link) -> list[str]:
            held = await link.fetch(self._sql["claims_of"], key)
            queues_to_notify: list[str] = []
            if held:
                now = await link.row(self._store_now, self._server.store_clock.bind())
                assert now is not None
                row = await link.row(
                    self._sql["release_claims"], now["now"], key, [job[0] for job in held],
                    [job[1] for job in held],
                )  # fmt: skip
                queues_to_notify += [] if row is None else row["queues"] or ()
            await link.fetch(self._sql["deregister"], key)
            return queues_to_notify

        await self._notifier.notify(await self._server.within(work))
        self._turns.remove_process(key)
        self._close_liveness(key)

    async def remove_dead(self) -> int:
        return len(await self._server.ask(self._sql["delete_dead"]))

    async def all(self) -> list[ProcessRecord]:
        now = self._server.store_clock.bind()
        found = await self._server.ask(self._sql["alive"], now, writes=False)
        records = [_record(row) for row in found]
        self._turns.update(records)
        return records

    async def signatures(self, kind: str) -> list[ProcessSignature]:
        now = self._server.store_clock.bind()
        found = await self._server.ask(self._sql["signatures"], now, kind, writes=False)
        return [
            ProcessSignature(row["id"], tuple(row["queues"]), _signature_of(row["signature"]))
            for row in found
        ]

    async def control(self, key: int) -> Control:
        [row] = await self._server.ask_urgent(self._sql["control"], key)
        return Control(row["version"], row["cancels"], row["quiet"])

    async def quiet(self, host_id: str, *, quiet: bool) -> None:
        async def work(link: Link) -> None:
            now = self._server.store_clock.bind()
            if not await link.fetch(self._sql["set_quiet"], now, host_id, quiet):
                raise NotFound(f"no living worker process has the host_id {host_id!r}")
            await link.fetch(self._raise_control_version)

        await self._server.within(work)
        await self._notifier.notify([EVERYBODY])

    async def share(self, *, max_slots: int) -> int:
        now = self._server.store_clock.bind()
        [found] = await self._server.ask(
            self._sql["slot_share_changes"], now, max_slots, writes=False
        )
        if not found["changes"]:
            return 0
        lock = f"forge-jobs:{self._server.address.schema}:share"
        # Idempotent: a repeated call finds nothing to change.
        [row] = await self._server.ask(self._sql["assign_slot_shares"], now, max_slots, lock)
        if row["changed"]:
            await self._notifier.notify([EVERYBODY])
        return row["changed"]

    async def release_slots(self, key: int, in_use: Sequence[SlotsInUse]) -> int:
        if not in_use:
            return 0
        encoded = rows.as_json([structs.asdict(entry) for entry in in_use])
        [row] = await self._server.ask(self._sql["release_slots"], key, encoded)
        return row["freed"]

    async def next_expiry(self) -> Instant | None:
        [row] = await self._server.ask_urgent(
            self._sql["next_expiry"], self._server.store_clock.bind()
        )
        known = [at for at in (row["at"], self._silent_at) if at is not None]
        return min(known, default=None)

    async def declare_dead(self, link: Link, now: Instant) -> None:
        """Declare processes of this machine dead that ended without deregistering.

        They must also have missed a heartbeat. Copies of one virtual machine may claim to be at one
        place; but a process that lives sends heartbeats.
        """
        found = await link.fetch(self._sql["places"])
        ended = [row for row in found if liveness_socket.is_dead(row["machine"])]
        dead = [row["id"] for row in ended if row["silent_at"] <= now]
        self._silent_at = min(
            (row["silent_at"] for row in ended if row["silent_at"] > now), default=None
        )
        if dead:
            await link.fetch(self._sql["declare_dead"], dead)

    async def lead(self, name: str, key: int, *, ttl_s: float) -> bool:
        now = self._server.store_clock.bind()
        return bool(
            await self._server.ask_urgent(self._sql["acquire_leadership"], now, name, key, ttl_s)
        )

    async def release_lead(self, name: str, key: int) -> None:
        await self._server.ask_urgent(self._sql["release_leadership"], name, key)

    def _close_liveness(self, key: int) -> None:
        liveness = self._liveness.pop(key, None)
        if liveness is not None:
            liveness.close()


def _record(row: Row) -> ProcessRecord:
    return ProcessRecord(
        key=row["id"],
        host_id=row["host_id"],
        label=row["label"],
        queues=tuple(row["queues"]),
        pid=row["pid"],
        hostname=row["hostname"],
        version=row["version"],
        started_at=row["started_at"],
        beat_at=row["heartbeat_at"],
        lease_s=row["lease_s"],
        running=row["running"],
        slots=_slots.decode(row["slots"]),
        memory_bytes=row["memory_bytes"],
        cores=row["cores"],
        disk_share=row["disk_share"],
        quiet=row["quiet"],
        shares={}
        if row["shares"] is None
        else {queue: Share(*share) for queue, share in _shares.decode(row["shares"]).items()},
    )
