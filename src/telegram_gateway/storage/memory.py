"""The gateway's own tables in memory, for a gateway without a database."""

from collections.abc import Sequence
from typing import Final

from telegram_gateway.flood import SendLimit

from .contract import QuarantinedBody, Reply

_MAX_QUARANTINE: Final = 100
_MAX_LEVELS: Final = 10_000


class MemoryGatewayStore:
    """Keeps everything in dicts; it is lost when the process ends."""

    def __init__(self) -> None:
        self._until: dict[int, int] = {}
        self._wrong: dict[int, list[int]] = {}
        self._quarantined: list[QuarantinedBody] = []
        self._last_quarantined = 0
        self._levels: dict[str, int] = {}
        self._kinds: dict[str, str] = {}
        self._slots: dict[str, int] = {}

    async def probe(self) -> None:
        return

    async def open(self) -> None:
        return

    async def close(self) -> None:
        return

    async def session_until(self, user_id: int, now: int) -> int | None:
        until = self._until.get(user_id)
        return until if until is not None and until > now else None

    async def start_session(self, user_id: int, until: int, reply: Reply) -> None:
        self._until[user_id] = until
        self._wrong.pop(user_id, None)
        await reply.aenqueue()

    async def end_session(self, user_id: int, reply: Reply) -> None:
        self._until.pop(user_id, None)
        await reply.aenqueue()

    async def delete_user(self, user_id: int) -> None:
        self._until.pop(user_id, None)
        self._wrong.pop(user_id, None)

    async def wrong_codes(self, user_id: int, since: int) -> int:
        return sum(at >= since for at in self._wrong.get(user_id, ()))

    async def record_wrong_code(self, user_id: int, at: int, reply: Reply) -> None:
        self._wrong.setdefault(user_id, []).append(at)
        await reply.aenqueue()

    async def quarantine(self, bot_id: str, at: int, body: bytes, *, reason: str, size: int) -> int:
        self._last_quarantined += 1
        found = QuarantinedBody(self._last_quarantined, at, bot_id, reason, size, body)
        self._quarantined = [*self._quarantined, found][-_MAX_QUARANTINE:]
        return found.id

    async def quarantined(self, *, bot_id: str | None, limit: int) -> list[QuarantinedBody]:
        newest = reversed(self._quarantined)
        return [found for found in newest if bot_id is None or found.bot_id == bot_id][:limit]

    async def quarantined_body(self, number: int) -> QuarantinedBody | None:
        return next((found for found in self._quarantined if found.id == number), None)

    async def delete_quarantined(self, number: int) -> None:
        self._quarantined = [found for found in self._quarantined if found.id != number]

    async def assign_update_kind(self, bot_id: str, candidates: Sequence[str]) -> dict[str, str]:
        taken = set(self._kinds.values())
        if bot_id not in self._kinds:
            self._kinds[bot_id] = next(kind for kind in candidates if kind not in taken)
        return dict(self._kinds)

    async def queue_slots(self) -> dict[str, int]:
        return dict(self._slots)

    async def record_queue_slots(self, queue: str, slots: int) -> None:
        self._slots[queue] = slots

    async def acquire(self, wanted: Sequence[SendLimit], now: int) -> int:
        if len(self._levels) > _MAX_LEVELS:
            self._levels = {key: level for key, level in self._levels.items() if level > now}
        found = {one.key: one.after_send(self._levels.get(one.key), now) for one in wanted}
        wait = max((wait for _, wait in found.values()), default=0)
        if not wait:
            self._levels |= {key: level for key, (level, _) in found.items()}
        return wait

    async def purge(self, *, now: int, wrong_before: int, quarantine_before: int) -> int:
        expired = [user for user, until in self._until.items() if until <= now]
        for user in expired:
            del self._until[user]
        for user, moments in list(self._wrong.items()):
            left = [at for at in moments if at >= wrong_before]
            if left:
                self._wrong[user] = left
            else:
                del self._wrong[user]
        self._quarantined = [one for one in self._quarantined if one.at >= quarantine_before]
        return len(expired)
