"""The metrics contract: the audit."""

from forge_jobs.core.audit import AuditEntry
from forge_jobs.core.instant import MINUTE
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

_DETAIL = {"changed": 3, "whole": False, "reason": None, "per_s": 0.5, "word": "ä"}


async def _record(store: Store, at: int, *actions: str) -> None:
    for action in actions:
        await store.metrics.record_action(
            AuditEntry(at=at, actor="ada", action=action, subject="queue mail", detail=_DETAIL)
        )


class TestAudit:
    """``record_action``, ``actions``, ``purge_actions``."""

    async def test_entries_come_back_whole_and_newest_first(
        self, store: Store, clock: MovableClock
    ) -> None:
        await _record(store, clock.now(), "pause", "resume", "retry")
        seen = await store.metrics.actions(limit=10)
        assert [entry.action for entry in seen] == ["retry", "resume", "pause"]
        assert seen[0].id > seen[1].id > seen[2].id
        first = seen[2]
        assert (first.at, first.actor, first.subject) == (clock.now(), "ada", "queue mail")
        assert first.detail == _DETAIL

    async def test_entries_are_paged_by_id(self, store: Store, clock: MovableClock) -> None:
        await _record(store, clock.now(), *(f"act {n}" for n in range(5)))
        first = await store.metrics.actions(limit=2)
        rest = await store.metrics.actions(limit=10, after=first[-1].id)
        assert [entry.action for entry in first] == ["act 4", "act 3"]
        assert [entry.action for entry in rest] == ["act 2", "act 1", "act 0"]
        assert await store.metrics.actions(limit=10, after=rest[-1].id) == []

    async def test_old_entries_are_forgotten_in_batches_and_ids_go_on(
        self, store: Store, clock: MovableClock
    ) -> None:
        now = clock.now()
        for turn in range(5):
            await _record(store, now + turn * MINUTE, f"act {turn}")
        newest = (await store.metrics.actions(limit=1))[0].id
        before = now + 3 * MINUTE
        removed = [await store.metrics.purge_actions(before=before, limit=2) for _ in range(3)]
        assert removed == [2, 1, 0]
        left = await store.metrics.actions(limit=10)
        assert [entry.action for entry in left] == ["act 4", "act 3"]
        await store.metrics.purge_actions(before=now + MINUTE * 9, limit=10)
        await _record(store, now, "later")
        assert (await store.metrics.actions(limit=1))[0].id > newest
