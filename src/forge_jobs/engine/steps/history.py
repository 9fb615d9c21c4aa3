"""The stored steps of one job, as its run knows them."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from forge_jobs.core.events import TakenEvent, topic_of
from forge_jobs.core.instant import Instant
from forge_jobs.core.steps import ClaimedSteps, StepKind, StepRecord, is_internal
from forge_jobs.core.unused_steps import UnusedSteps, unused_steps

ReadPage = Callable[[str], Awaitable[list[StepRecord]]]
_EVENT, _CURSOR, _SLEEP, _TIMEOUT = (
    StepKind.EVENT, StepKind.CURSOR, StepKind.SLEEP, StepKind.TIMEOUT
)  # fmt: skip


class History:
    """The records that came with the claim, those read by page since, and those stored by this run.

    Records come in the order of their names, so that a name up to the last one read is known.
    ``read_page`` reads those after a name. Used on the job loop; threads may call ``known``.
    """

    __slots__ = (
        "_cursors", "_last", "_lock", "_read_page", "_records", "_unused", "more", "size",
    )  # fmt: skip

    def __init__(self, claimed: ClaimedSteps | None, read_page: ReadPage) -> None:
        records: tuple[StepRecord, ...] = () if claimed is None else claimed.records
        self._records = {record.name: record for record in records}
        # Records of earlier runs that this one has not asked for; empty in a first run.
        self._unused = set(self._records)
        self._last: str = records[-1].name if records else ""
        self._read_page = read_page
        self._lock: asyncio.Lock | None = None
        self._cursors: dict[str, int] | None = None
        self.more = claimed is not None and claimed.more
        self.size = sum(record.size for record in records)

    def __len__(self) -> int:
        return len(self._records)

    def known(self, name: str) -> tuple[bool, StepRecord | None]:
        """Whether it is known what is stored under ``name``, and that."""
        record = self._records.get(name)
        self._unused.discard(name)
        return record is not None or not self.more or name <= self._last, record

    async def find(self, name: str) -> StepRecord | None:
        """What is stored under ``name``."""
        while True:
            is_known, record = self.known(name)
            if is_known:
                return record
            await self._read_more()

    async def read_all(self) -> None:
        """Read all that is not known yet."""
        while self.more:
            await self._read_more()

    def add(self, record: StepRecord) -> None:
        """A record was stored, or turned out to be."""
        if record.name not in self._records:
            self.size += len(record.value or b"")
        self._records[record.name] = record
        self._unused.discard(record.name)
        if self._cursors is not None:
            self._advance(self._cursors, record)

    def unused(self, epoch: int, *, to_the_end: bool) -> UnusedSteps | None:
        """The steps of earlier claims that this one, ``epoch``, has not asked for; None if it has
        for all. A run that did not get ``to_the_end`` is only known to have passed those that began
        before one that it used."""
        if not (self._unused or self.more):
            return None
        # A thread whose handler was told to end may still ask for some.
        unused = set(self._unused)
        earlier = [
            record
            for record in self._records.values()
            if record.epoch < epoch and not is_internal(record.name)
        ]
        names = [record.name for record in earlier if record.name in unused]
        if to_the_end:
            return unused_steps(names, self._last if self.more else None)
        used = [record.began_at for record in earlier if record.name not in unused]
        last = max(used, default=0)
        return unused_steps(name for name in names if self._records[name].began_at < last)

    def cursors(self) -> dict[str, int]:
        """The ``seq`` of the last event that the job took, by topic, as far as steps were read."""
        if self._cursors is None:
            self._cursors = {}
            for record in self._records.values():
                self._advance(self._cursors, record)
        return self._cursors

    def sleeps(self) -> list[Instant]:
        """The instants of all stored sleeps, deadlines of waits among them; after ``read_all``."""
        return [
            msgspec.json.decode(record.value or b"0", type=int)
            for record in self._records.values()
            if record.kind is _SLEEP
        ]

    def sleep_epoch(self, instant: Instant) -> int:
        """The epoch of the run that parked with a sleep until ``instant``; 0 if none did."""
        text = str(instant).encode()
        epochs = [
            record.epoch
            for record in self._records.values()
            if record.kind is _SLEEP and record.value == text
        ]
        return max(epochs, default=0)

    def last_wait_ended_at(self) -> Instant:
        """When the last wait ended, by an event or its deadline; 0 if none has."""
        kinds = (_EVENT, _TIMEOUT)
        ended = [record.ended_at for record in self._records.values() if record.kind in kinds]
        return max(ended, default=0)

    def _advance(self, cursors: dict[str, int], record: StepRecord) -> None:
        if record.kind is _EVENT:
            taken = msgspec.json.decode(record.value or b"", type=TakenEvent)
            topic, seq = topic_of(taken.name, taken.key), taken.seq
        elif record.kind is _CURSOR:
            topic, seq = record.name[1:], msgspec.json.decode(record.value or b"0", type=int)
        else:
            return
        cursors[topic] = max(cursors.get(topic, 0), seq)

    async def _read_more(self) -> None:
        if self._lock is None:
            self._lock = asyncio.Lock()
        last = self._last
        async with self._lock:
            if self._last != last or not self.more:
                return
            page = await self._read_page(last)
            self.more = bool(page)
            for record in page:
                self._last = record.name
                if record.name not in self._records:
                    self.size += record.size
                    self._records[record.name] = record
                    if self._cursors is not None:
                        self._advance(self._cursors, record)
                    self._unused.add(record.name)
