"""The settings contract: names, versions, expiry by store time, and concurrent writers."""

import asyncio

import pytest

from forge_jobs.core.errors import BadName, BadOption
from forge_jobs.core.instant import SECOND
from forge_jobs.core.settings import MAX_VALUE
from forge_jobs.store.settings import Setting
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .fixtures import SecondStore

ALL_BYTES = bytes(range(256))
BAD_NAMES = {
    "empty namespace": ("", "name"),
    "large letters": ("Web", "name"),
    "namespace too long": ("w" * 64, "name"),
    "namespace with a space": ("a b", "name"),
    "empty name": ("web", ""),
    "name too long": ("web", "n" * 513),
    "name with NUL": ("web", "a\0b"),
    "name with a surrogate": ("web", "\ud800"),
}


@pytest.mark.asyncio
class TestSettings:
    """Small named values."""

    async def test_what_was_put_is_there(self, store: Store) -> None:
        assert await store.settings.get("web", "key") is None
        first = await store.settings.put("web", "key", ALL_BYTES)
        assert first == Setting(name="key", value=ALL_BYTES, version=1)
        assert await store.settings.get("web", "key") == first
        second = await store.settings.put("web", "key", b"")
        assert (second.value, second.version) == (b"", 2)
        assert await store.settings.get("web", "key") == second

    async def test_namespaces_are_independent(self, store: Store) -> None:
        await store.settings.put("web", "key", b"one")
        await store.settings.put("web.2", "key", b"two")
        assert await store.settings.delete("web", "key")
        assert await store.settings.get("web", "key") is None
        other = await store.settings.get("web.2", "key")
        assert other is not None
        assert other.value == b"two"

    async def test_a_setting_is_removed_once(self, store: Store) -> None:
        await store.settings.put("web", "key", b"x")
        assert await store.settings.delete("web", "key")
        assert not await store.settings.delete("web", "key")

    async def test_expiry_is_in_store_time(self, store: Store, clock: MovableClock) -> None:
        kept = await store.settings.put("web", "a", b"x", ttl_s=60)
        assert kept.until == clock.now() + 60 * SECOND
        clock.advance(59.999)
        assert await store.settings.get("web", "a") == kept
        clock.advance(0.001)
        assert await store.settings.get("web", "a") is None
        assert not await store.settings.delete("web", "a")

    async def test_a_put_replaces_the_expiry(self, store: Store, clock: MovableClock) -> None:
        await store.settings.put("web", "a", b"x", ttl_s=10)
        await store.settings.put("web", "a", b"y", ttl_s=30)
        clock.advance(20)
        assert await store.settings.get("web", "a") is not None
        await store.settings.put("web", "a", b"z")
        clock.advance(86_400)
        last = await store.settings.get("web", "a")
        assert last is not None
        assert (last.value, last.until) == (b"z", None)

    async def test_the_first_of_many_is_kept(self, store: Store) -> None:
        answers = await asyncio.gather(
            *(store.settings.put_if_absent("web", "key", bytes([n])) for n in range(8))
        )
        assert len({answer.value for answer in answers}) == 1
        assert {answer.version for answer in answers} == {1}
        assert await store.settings.get("web", "key") == answers[0]

    async def test_two_stores_agree_on_the_first(
        self, store: Store, second_store: SecondStore | None
    ) -> None:
        if second_store is None:
            return
        other = second_store(store)
        await other.open()
        answers = await asyncio.gather(
            *(
                each.settings.put_if_absent("web", f"key {number}", bytes([which]))
                for number in range(10)
                for which, each in enumerate((store, other))
            )
        )
        assert answers[::2] == answers[1::2]
        await store.settings.delete("web", "key 0")
        assert await other.settings.get("web", "key 0") is None
        await other.close()

    async def test_an_expired_setting_is_absent(self, store: Store, clock: MovableClock) -> None:
        await store.settings.put("web", "a", b"old", ttl_s=5)
        assert (await store.settings.put_if_absent("web", "a", b"new")).value == b"old"
        clock.advance(5)
        assert (await store.settings.put_if_absent("web", "a", b"new", ttl_s=9)).value == b"new"
        assert (await store.settings.put_if_absent("web", "a", b"newer")).value == b"new"

    async def test_purge_keeps_what_has_not_expired(
        self, store: Store, clock: MovableClock
    ) -> None:
        for number in range(5):
            await store.settings.put("web", f"short {number}", b"", ttl_s=1)
        await store.settings.put("web", "long", b"", ttl_s=60)
        await store.settings.put("web", "for ever", b"")
        assert await store.settings.purge(limit=10) == 0
        clock.advance(2)
        assert await store.settings.purge(limit=3) == 3
        assert await store.settings.purge(limit=3) == 2
        assert await store.settings.purge(limit=3) == 0
        assert await store.settings.get("web", "long") is not None
        assert await store.settings.get("web", "for ever") is not None

    async def test_trim_keeps_those_that_expire_last(self, store: Store) -> None:
        for number in range(6):
            await store.settings.put("web", str(number), b"", ttl_s=60 + number)
        await store.settings.put("web", "for ever", b"")
        await store.settings.put("other", "0", b"", ttl_s=1)
        assert await store.settings.trim("web", keep=6) == 0
        assert await store.settings.trim("web", keep=2) == 4
        found = [await store.settings.get("web", str(number)) for number in range(6)]
        assert [setting is not None for setting in found] == [False] * 4 + [True] * 2
        assert await store.settings.get("web", "for ever") is not None
        assert await store.settings.get("other", "0") is not None

    @pytest.mark.parametrize("case", BAD_NAMES)
    async def test_bad_names_are_refused(self, store: Store, case: str) -> None:
        namespace, name = BAD_NAMES[case]
        for call in (
            store.settings.get(namespace, name),
            store.settings.put(namespace, name, b""),
            store.settings.put_if_absent(namespace, name, b""),
            store.settings.delete(namespace, name),
        ):
            with pytest.raises(BadName):
                await call

    async def test_values_and_ttls_are_bounded(self, store: Store) -> None:
        await store.settings.put("web", "large", b"s" * MAX_VALUE)
        with pytest.raises(BadOption) as caught:
            await store.settings.put("web", "large", b"secret" * MAX_VALUE)
        assert "secret" not in str(caught.value)
        for ttl_s in (0.0, -1.0, float("nan"), float("inf")):
            with pytest.raises(BadOption):
                await store.settings.put("web", "a", b"", ttl_s=ttl_s)
        large = await store.settings.get("web", "large")
        assert large is not None
        assert len(large.value) == MAX_VALUE

    async def test_a_value_is_not_shown(self, store: Store) -> None:
        kept = await store.settings.put("web", "key", b"secret")
        assert "secret" not in f"{kept} {kept!r}"
