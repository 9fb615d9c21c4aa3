"""Seats: who holds a job that was dequeued, for as long as its lease lasts.

A seat is a process of the store's process contract whose lease is the job's: liveness, fence and
crash accounting are the same as for workers. A seat holds one job at a time and serves again when
that job has ended, so that a script that works one job after the other registers once. Whoever
holds very many at once lets some of them share.
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

# The store is given this much more than was asked for, so that a seat whose last beat is no older
# than that can be used again without another one.
_SLACK: Final = 0.1
_FORGOTTEN_AFTER_LEASES: Final = 3
_LEAVE_S: Final = 2.0
_MAX_SEATS: Final = 64
_BUSY: Final = ProcessStats(running=1)


class ClaimLease:
    """One owner of claims. ``beaten`` is when its lease was last renewed, as the clock runs;
    ``holds`` are its claims; ``unsure``: the answer to one got lost, so that it may hold a job
    nobody knows of. ``turn``: on the I/O loop, one exchange at a time."""

    __slots__ = ("beaten", "holds", "key", "lease_s", "number", "turn", "unsure")

    def __init__(self, key: int, lease_s: float, beaten: float) -> None:
        self.key = key
        self.lease_s = lease_s
        self.beaten = beaten
        self.number = 0
        self.unsure = False
        self.holds: set[Claim] = set()
        self.turn = asyncio.Lock()

    def is_fresh(self, now: float) -> bool:
        """Whether its lease still has as long to run as was asked for."""
        return now - self.beaten <= self.lease_s * _SLACK

    def next_number(self) -> int:
        """The number of its next exchange."""
        self.number += 1
        return self.number


class ClaimLeases:
    """The seats of one process for one queue."""

    def __init__(self, access: StoreAccess, queue: str, clock: Clock, entropy: Entropy) -> None:
        self._access = access
        self._queue = queue
        self._clock = clock
        self._entropy = entropy
        self.forget()

    def forget(self) -> None:
        """In a forked child: every seat belongs to the parent."""
        self._guard = threading.Lock()
        self._free: list[ClaimLease] = []
        self._taken: dict[int, ClaimLease] = {}

    def take(self, lease_s: float) -> ClaimLease:
        """A seat whose lease has at least ``lease_s`` to run."""
        seat = self._free_one(lease_s) or self._shared_one(lease_s)
        if seat is None:
            return self._register(lease_s)
        if seat.is_fresh(self._clock.mono()):
            return seat
        key = seat.key
        try:
            alive = self._access.run(lambda store: self.heartbeat(store, key))
        except BaseException:
            self.drop(seat)
            raise
        if alive:
            return seat
        self.lose(key)
        return self._register(lease_s)

    def got(self, seat: ClaimLease, claim: Claim | None) -> None:
        """What a round brought; a seat without a job serves again."""
        with self._guard:
            if claim is not None:
                seat.holds.add(claim)
            elif not seat.holds and self._taken.pop(seat.key, None) is not None:
                self._free.append(seat)

    def ended(self, key: int, claim: Claim, *, lost: bool = False) -> None:
        """A claim is over; no effect if that was known, or for a seat of another process."""
        with self._guard:
            seat = self._taken.get(key)
            if seat is None or claim not in seat.holds:
                return
            seat.holds.discard(claim)
            if lost or not seat.holds:
                del self._taken[key]
            if not (lost or seat.holds or seat.unsure):
                self._free.append(seat)
        if seat.unsure and not seat.holds:
            self.drop(seat)

    def fresh(self, key: int) -> ClaimLease | None:
        """A seat of ours that may claim once more as it is; None for any other."""
        with self._guard:
            seat = self._taken.get(key)
        good = seat is not None and not seat.unsure and seat.is_fresh(self._clock.mono())
        return seat if good else None

    def of(self, key: int) -> ClaimLease | None:
        """A seat of ours that is in use."""
        return self._taken.get(key)

    def lose(self, key: int) -> None:
        """The store holds the seat for dead."""
        with self._guard:
            self._taken.pop(key, None)

    def drop(self, seat: ClaimLease) -> None:
        """Nobody knows what it holds: let the store take it back, without waiting for that. A seat
        with other jobs is not used again; what it holds besides goes when they have ended."""
        seat.unsure = True
        if seat.holds:
            return
        self.lose(seat.key)
        with contextlib.suppress(Exception):
            self._access.start(lambda: _leave(self._access.store, [seat.key]))

    def undo(self, seat: ClaimLease, number: int) -> None:
        """Hand back what the exchange of that number has claimed or is about to claim, without
        waiting for that: its caller was interrupted and will never see it."""
        seat.unsure = True
        with contextlib.suppress(Exception):
            self._access.start(lambda: self._undo(seat, number))

    async def _undo(self, seat: ClaimLease, number: int) -> None:
        store = self._access.store
        async with seat.turn:
            owned = await store.jobs.owned(seat.key)
            claims = [one.claim for one in owned if one.exchange == number]
            if claims:
                await store.jobs.exchange(Exchange(owner=seat.key, number=0, release=claims))
        with self._guard:
            seat.holds.difference_update(claims)
        # With all that it may still hold, unless others of this process share it.
        self.drop(seat)

    async def heartbeat(self, store: Store, key: int) -> bool:
        """Renew the lease of a seat, also of another process's; False when it was lost."""
        sent = self._clock.mono()
        answer = await store.processes.heartbeat(key, _BUSY)
        with self._guard:
            seat = self._taken.get(key)
        if seat is not None and answer.alive:
            seat.beaten = sent
        return answer.alive

    def leave(self) -> None:
        """Give up the seats that hold nothing. What the others hold is lost with their lease:
        handing it back unspent would let a job that ends its script be tried for ever."""
        with self._guard:
            free, self._free = self._free, []
        if free:
            keys = [seat.key for seat in free if not seat.holds]
            self._access.start(lambda: _leave(self._access.store, keys)).result(_LEAVE_S)

    def _free_one(self, lease_s: float) -> ClaimLease | None:
        with self._guard:
            for place in range(len(self._free) - 1, -1, -1):
                if self._free[place].lease_s == lease_s:
                    seat = self._free.pop(place)
                    self._taken[seat.key] = seat
                    return seat
        return None

    def _shared_one(self, lease_s: float) -> ClaimLease | None:
        """Beyond so many, jobs dequeued within a tenth of a lease share a seat: no lease becomes
        longer by that, unless one of them gets a heartbeat. On SQLite a seat is an open file."""
        now = self._clock.mono()
        with self._guard:
            if len(self._taken) < _MAX_SEATS:
                return None
            for seat in reversed(self._taken.values()):
                if seat.lease_s == lease_s and not seat.unsure and seat.is_fresh(now):
                    return seat
        return None

    def _register(self, lease_s: float) -> ClaimLease:
        began = self._clock.mono()
        with self._guard:
            # Jobs that were dequeued here and never ended.
            for seat in list(self._taken.values()):
                if began - seat.beaten > seat.lease_s * _FORGOTTEN_AFTER_LEASES:
                    del self._taken[seat.key]
        new = NewProcess(
            host_id=new_ulid(self._clock.now(), self._entropy),
            label=f"pull-{self._queue}-{os.getpid()}",
            queues=(self._queue,),
            pid=os.getpid(),
            hostname=socket.gethostname(),
            lease_s=lease_s * (1 + _SLACK),
        )
        seat = ClaimLease(self._access.run(lambda store: _join(store, new)), lease_s, began)
        with self._guard:
            self._taken[seat.key] = seat
        return seat


async def _join(store: Store, new: NewProcess) -> int:
    # No service may be running to remove the rows of scripts that were killed.
    await store.processes.remove_dead()
    return await store.processes.register(new)


async def _leave(store: Store, keys: list[int]) -> None:
    for key in keys:
        await store.processes.deregister(key)
