"""The settings contract: names, versions, expiry by store time, and concurrent writers."""

import asyncio

import msgspec
import pytest

from forge_jobs.core.errors import BadName, BadOption, NotFound
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.settings import MAX_VALUE
from forge_jobs.store.queues import PublishedKind, QueueConfig
from forge_jobs.store.settings import KIND, QUEUE, Setting, put_if_absent
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .fixtures import SecondStore
from .worker import Process

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
            *(put_if_absent(store.settings, "web", "key", bytes([n])) for n in range(8))
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
                put_if_absent(each.settings, "web", f"key {number}", bytes([which]))
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
        assert (await put_if_absent(store.settings, "web", "a", b"new")).value == b"old"
        clock.advance(5)
        assert (await put_if_absent(store.settings, "web", "a", b"new", ttl_s=9)).value == b"new"
        assert (await put_if_absent(store.settings, "web", "a", b"newer")).value == b"new"

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
            put_if_absent(store.settings, namespace, name, b""),
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

    async def test_all_of_a_namespace_by_name(self, store: Store, clock: MovableClock) -> None:
        for name in ("b", "a.x", "C", "a"):
            await store.settings.put("web", name, name.encode())
        await store.settings.put("web", "short", b"", ttl_s=5)
        await store.settings.put("web.2", "other", b"")
        assert len(await store.settings.all("web")) == 5
        clock.advance(5)
        found = await store.settings.all("web")
        assert [(one.name, one.value) for one in found] == [
            ("C", b"C"), ("a", b"a"), ("a.x", b"a.x"), ("b", b"b"),
        ]  # fmt: skip
        assert await store.settings.all("none") == []


@pytest.mark.asyncio
class TestUpdates:
    """``update``: read, change and write in one transaction."""

    async def test_concurrent_updates_happen_one_after_the_other(self, store: Store) -> None:
        answers = await asyncio.gather(
            *(store.settings.update("web", {"n": _one_more}) for _ in range(20))
        )
        values = [_value(answer["n"]) for answer in answers]
        assert sorted(values) == list(range(1, 21))
        last = await store.settings.get("web", "n")
        assert last == Setting(name="n", value=b"20", version=20)

    async def test_two_stores_update_one_after_the_other(
        self, store: Store, second_store: SecondStore | None
    ) -> None:
        if second_store is None:
            return
        other = second_store(store)
        await other.open()
        await asyncio.gather(
            *(each.settings.update("web", {"n": _one_more}) for each in [store, other] * 10)
        )
        assert _value(await other.settings.get("web", "n")) == 20
        await other.close()

    async def test_concurrent_updates_of_a_queue(self, store: Store) -> None:
        await store.queues.ensure("q", slots=1)

        def more(current: Setting | None, now: Instant) -> bytes:
            assert current is not None
            config = msgspec.json.decode(current.value, type=QueueConfig)
            config = msgspec.structs.replace(config, slots=config.slots + 1, updated_at=now)
            return msgspec.json.encode(config)

        await asyncio.gather(*(store.settings.update(QUEUE, {"q": more}) for _ in range(20)))
        found = await store.queues.get("q")
        assert found is not None
        assert found.slots == 21

    async def test_a_change_gets_store_time(self, store: Store, clock: MovableClock) -> None:
        clock.advance(7)
        answer = await store.settings.update("web", {"at": lambda _, now: str(now).encode()})
        assert _value(answer["at"]) == clock.now()

    async def test_none_leaves_no_trace(self, store: Store, worker: Process) -> None:
        await store.queues.ensure("q", slots=1)
        kept = await store.settings.put("web", "kept", b"x", ttl_s=60)
        version = (await store.processes.control(worker.key)).version
        for namespace, name in ((QUEUE, "none"), ("web", "none")):
            assert await store.settings.update(namespace, {name: _nothing}) == {name: None}
            assert await store.settings.get(namespace, name) is None
        before = await store.queues.get("q")
        answer = await store.settings.update(QUEUE, {"q": _nothing})
        assert answer["q"] == await store.settings.get(QUEUE, "q")
        assert await store.queues.get("q") == before
        assert await store.settings.update("web", {"kept": _nothing}) == {"kept": kept}
        assert await store.settings.get("web", "kept") == kept
        assert (await store.processes.control(worker.key)).version == version

    @pytest.mark.parametrize("error", [ValueError("no"), OSError("no"), NotFound("no")], ids=repr)
    async def test_an_exception_leaves_no_trace(
        self, store: Store, worker: Process, error: Exception
    ) -> None:
        kind = msgspec.json.encode(PublishedKind("a", "q"))
        version = (await store.processes.control(worker.key)).version

        def fail(current: Setting | None, now: Instant) -> bytes:
            raise error

        for namespace, value in ((KIND, kind), ("web", b"x")):
            with pytest.raises(type(error), match="no"):
                await store.settings.update(namespace, {"a": lambda _, __, v=value: v, "b": fail})
            assert await store.settings.all(namespace) == []
        assert await store.queues.kinds() == {}
        assert (await store.processes.control(worker.key)).version == version

    async def test_what_is_refused_refuses_all(self, store: Store) -> None:
        with pytest.raises(BadOption) as caught:
            await store.settings.update(
                "web", {"a": lambda _, __: b"x", "b": lambda _, __: b"secret" * MAX_VALUE}
            )
        assert "secret" not in str(caught.value)
        assert await store.settings.all("web") == []

    async def test_the_value_of_a_typed_setting_is_checked(self, store: Store) -> None:
        config = msgspec.json.encode(QueueConfig(name="q", slots=3))
        for name, value, ttl_s in (
            ("q", b"{", None), ("q", b'{"name":"q","slots":"3"}', None), ("p", config, None),
            ("q", config, 5.0),
        ):  # fmt: skip
            with pytest.raises(BadOption):
                await store.settings.put(QUEUE, name, value, ttl_s=ttl_s)
            with pytest.raises(BadOption):
                await store.settings.update(QUEUE, {name: lambda _, __, v=value: v}, ttl_s=ttl_s)
        assert await store.settings.all(QUEUE) == []

    async def test_an_update_of_what_steers_workers_raises_the_control_version(
        self, store: Store, worker: Process
    ) -> None:
        versions = [(await store.processes.control(worker.key)).version]
        config = msgspec.json.encode(QueueConfig(name="q", slots=3))
        await store.settings.update(QUEUE, {"q": lambda _, __: config})
        versions.append((await store.processes.control(worker.key)).version)
        await store.settings.put(QUEUE, "q", config)
        versions.append((await store.processes.control(worker.key)).version)
        assert await store.settings.delete(QUEUE, "q")
        versions.append((await store.processes.control(worker.key)).version)
        assert versions == sorted(set(versions))
        assert not await store.settings.delete(QUEUE, "q")
        await store.settings.update("web", {"n": _one_more})
        await store.token_buckets.ensure("smtp", capacity=1, refill_per_s=1)
        assert (await store.processes.control(worker.key)).version == versions[-1]

    async def test_an_update_replaces_the_expiry(self, store: Store, clock: MovableClock) -> None:
        await store.settings.update("web", {"n": _one_more}, ttl_s=5)
        clock.advance(5)
        answer = await store.settings.update("web", {"n": _one_more}, ttl_s=9)
        assert _value(answer["n"]) == 1, "it started again"
        answer = await store.settings.update("web", {"n": _one_more})
        assert answer["n"] is not None
        assert (answer["n"].value, answer["n"].until) == (b"2", None)


def _one_more(current: Setting | None, now: Instant) -> bytes:
    return str(_value(current) + 1).encode()


def _nothing(current: Setting | None, now: Instant) -> None:
    return None


def _value(setting: Setting | None) -> int:
    return 0 if setting is None else int(setting.value)
