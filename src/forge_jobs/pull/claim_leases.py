"""Claim leases: who owns a job that was dequeued, and until when.

A claim lease is a registered process (``ProcessStore``) whose process lease is the lease of the
job. Liveness, fencing and crash counts therefore work as they do for workers. A claim lease owns
one job at a time and is used again when that job has finished, so a script that works one job after
the other registers once. Beyond ``_MAX_LEASES`` jobs held at the same time, some share one.
"""

import asyncio
import contextlib
import os
import socket
import threading
from typing import Final

from forge_jobs.client.store_access import StoreAccess
from forge_jobs.core.job import Claim
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy, new_ulid
from forge_jobs.store.jobs import Exchange
from forge_jobs.store.processes import NewProcess, ProcessStats
from forge_jobs.store.store import Store

# The registered lease is longer than the requested one by this share. A claim lease whose last
# heartbeat is no older than that can own the next job without another heartbeat.
_SLACK: Final = 0.1
_FORGOTTEN_AFTER_LEASES: Final = 3
_DEREGISTER_S: Final = 2.0
_MAX_LEASES: Final = 64
_BUSY: Final = ProcessStats(running=1)


class ClaimLease:
    """One owner of claims.

    ``renewed_at`` is when the last good heartbeat was sent, by the monotonic clock. ``in_doubt``:
    the reply to an exchange was lost, so the store may know a claim of this owner that this process
    does not. ``exchange_lock`` lets one exchange at a time run on the I/O loop.
    """

    __slots__ = (
        "claims", "exchange_lock", "in_doubt", "last_number", "lease_s", "owner", "renewed_at",
    )  # fmt: skip

    def __init__(self, owner: int, lease_s: float, renewed_at: float) -> None:
        self.owner = owner
        self.lease_s = lease_s
        self.renewed_at = renewed_at
        self.last_number = 0
        self.in_doubt = False
        self.claims: set[Claim] = set()
        self.exchange_lock = asyncio.Lock()

    def is_fresh(self, now: float) -> bool:
        """Whether at least ``lease_s`` of the registered lease are left."""
        return now - self.renewed_at <= self.lease_s * _SLACK

    def next_number(self) -> int:
        """The number of its next exchange."""
        self.last_number += 1
        return self.last_number


class ClaimLeases:
    """The claim leases of one process for one queue; safe for many threads."""

    def __init__(self, access: StoreAccess, queue: str, clock: Clock, entropy: Entropy) -> None:
        self._access = access
        self._queue = queue
        self._clock = clock
        self._entropy = entropy
        self.forget_parent()

    def forget_parent(self) -> None:
        """In a forked child: every claim lease belongs to the parent."""
        self._lock = threading.Lock()
        self._idle: list[ClaimLease] = []
        self._in_use: dict[int, ClaimLease] = {}

    def acquire(self, lease_s: float) -> ClaimLease:
        """A claim lease with at least ``lease_s`` left: an idle one, a shared one, or a new one."""
        lease = self._take_idle(lease_s) or self._find_shareable(lease_s)
        if lease is None:
            return self._register(lease_s)
        if lease.is_fresh(self._clock.mono()):
            return lease
        owner = lease.owner
        try:
            alive = self._access.run(lambda store: self.heartbeat(store, owner))
        except BaseException:
            self.abandon(lease)
            raise
        if alive:
            return lease
        self.discard(owner)
        return self._register(lease_s)

    def add_claim(self, lease: ClaimLease, claim: Claim | None) -> None:
        """Record what an exchange claimed; None makes a claim lease without claims idle."""
        with self._lock:
            if claim is not None:
                lease.claims.add(claim)
            elif not lease.claims and self._in_use.pop(lease.owner, None) is not None:
                self._idle.append(lease)

    def remove_claim(self, owner: int, claim: Claim, *, lost: bool = False) -> None:
        """Record that a claim is over; ``lost``: the store says that it was taken away.

        No effect if that is recorded already, or if the owner belongs to another process.
        """
        with self._lock:
            lease = self._in_use.get(owner)
            if lease is None or claim not in lease.claims:
                return
            lease.claims.discard(claim)
            if lost or not lease.claims:
                del self._in_use[owner]
            if not (lost or lease.claims or lease.in_doubt):
                self._idle.append(lease)
        if lease.in_doubt and not lease.claims:
            self.abandon(lease)

    def reusable(self, owner: int) -> ClaimLease | None:
        """The claim lease if it is ours and may claim again without a heartbeat."""
        with self._lock:
            lease = self._in_use.get(owner)
        good = lease is not None and not lease.in_doubt and lease.is_fresh(self._clock.mono())
        return lease if good else None

    def in_use(self, owner: int) -> ClaimLease | None:
        """The claim lease if it is ours and in use."""
        return self._in_use.get(owner)

    def discard(self, owner: int) -> None:
        """Forget a claim lease that the store has declared dead."""
        with self._lock:
            self._in_use.pop(owner, None)

    def abandon(self, lease: ClaimLease) -> None:
        """Give up a claim lease whose claims are in doubt: deregister it in the background, which
        makes the store take back what it owns. One that still owns known claims is not used for new
        ones, and is deregistered when they are over."""
        lease.in_doubt = True
        if lease.claims:
            return
        self.discard(lease.owner)
        with contextlib.suppress(Exception):
            self._access.start(lambda: _deregister(self._access.store, [lease.owner]))

    def undo(self, lease: ClaimLease, number: int) -> None:
        """Release in the background what the exchange of that number has claimed or is about to
        claim: its caller was interrupted and will never see the job."""
        lease.in_doubt = True
        with contextlib.suppress(Exception):
            self._access.start(lambda: self._undo(lease, number))

    async def _undo(self, lease: ClaimLease, number: int) -> None:
        store = self._access.store
        async with lease.exchange_lock:
            owned = await store.jobs.owned(lease.owner)
            claims = [one.claim for one in owned if one.exchange == number]
            if claims:
                await store.jobs.exchange(Exchange(owner=lease.owner, number=0, release=claims))
        with self._lock:
            lease.claims.difference_update(claims)
        # Whatever else it owns is in doubt too, unless other jobs of this process share it.
        self.abandon(lease)

    async def heartbeat(self, store: Store, owner: int) -> bool:
        """Renew a claim lease, also one of another process; False when it was lost."""
        sent_at = self._clock.mono()
        reply = await store.processes.heartbeat(owner, _BUSY)
        with self._lock:
            lease = self._in_use.get(owner)
        if lease is not None and reply.alive:
            lease.renewed_at = sent_at
        return reply.alive

    def deregister_idle(self) -> None:
        """Deregister the claim leases that own nothing.

        Those that own a job stay until they expire: releasing the job without spending an attempt
        would retry a job that kills its script for ever.
        """
        with self._lock:
            idle, self._idle = self._idle, []
        if idle:
            owners = [lease.owner for lease in idle if not lease.claims]
            self._access.start(lambda: _deregister(self._access.store, owners)).result(
                _DEREGISTER_S
            )

    def _take_idle(self, lease_s: float) -> ClaimLease | None:
        with self._lock:
            for index in range(len(self._idle) - 1, -1, -1):
                if self._idle[index].lease_s == lease_s:
                    lease = self._idle.pop(index)
                    self._in_use[lease.owner] = lease
                    return lease
        return None

    def _find_shareable(self, lease_s: float) -> ClaimLease | None:
        """From ``_MAX_LEASES`` on, jobs dequeued within a tenth of a lease share one: no lease
        becomes longer by that, unless one of the jobs gets a heartbeat. On SQLite a claim lease
        costs an open file."""
        now = self._clock.mono()
        with self._lock:
            if len(self._in_use) < _MAX_LEASES:
                return None
            for lease in reversed(self._in_use.values()):
                if lease.lease_s == lease_s and not lease.in_doubt and lease.is_fresh(now):
                    return lease
        return None

    def _register(self, lease_s: float) -> ClaimLease:
        started_at = self._clock.mono()
        with self._lock:
            # Jobs that were dequeued here and never finished: their leases have long expired.
            for lease in list(self._in_use.values()):
                if started_at - lease.renewed_at > lease.lease_s * _FORGOTTEN_AFTER_LEASES:
                    del self._in_use[lease.owner]
        new = NewProcess(
            host_id=new_ulid(self._clock.now(), self._entropy),
            label=f"pull-{self._queue}-{os.getpid()}",
            queues=(self._queue,),
            pid=os.getpid(),
            hostname=socket.gethostname(),
            lease_s=lease_s * (1 + _SLACK),
        )
        owner = self._access.run(lambda store: _register_process(store, new))
        lease = ClaimLease(owner, lease_s, started_at)
        with self._lock:
            self._in_use[owner] = lease
        return lease


async def _register_process(store: Store, new: NewProcess) -> int:
    # No service may be running that removes the rows of killed scripts.
    await store.processes.remove_dead()
    return await store.processes.register(new)


async def _deregister(store: Store, owners: list[int]) -> None:
    for owner in owners:
        await store.processes.deregister(owner)
