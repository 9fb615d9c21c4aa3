"""The contract for settings: everything that people and code configure, under a namespace and name.

* A setting has a namespace, a name, a value, and a version that every write raises. It may have an
  expiry, which is in store time: an expired setting does not exist, whether or not it was deleted
  yet.
* Five namespaces are typed: ``queue``, ``kind``, ``limit``, ``schedule`` and ``token_bucket`` hold
  the JSON of a struct. A store keeps them in tables of their own, whose columns other statements
  read: ``jobs.exchange`` reads queues and limits. They have no expiry. Their version is the field
  ``version`` of the struct, else always 1. ``Queues``, ``Limits``, ``CronSchedules`` and
  ``TokenBuckets`` hold their rules, the same for every store.
* Values of all other namespaces have up to 64 KiB and are secrets (the signing key and the sessions
  of Mission Control): nothing prints, logs or exports them. Their writes are durable: on disk
  before the call returns.
* A write in a namespace of ``STEERING`` raises the control version and notifies every process.
* A write of a limit is applied, before the call returns, to the jobs of its keys that have not
  started: pending ones beyond the new number are held, held ones with room are admitted.
"""

from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from forge_jobs.core.instant import Instant

QUEUE: Final = "queue"
KIND: Final = "kind"
LIMIT: Final = "limit"
SCHEDULE: Final = "schedule"
TOKEN_BUCKET: Final = "token_bucket"
STEERING: Final = frozenset({QUEUE, KIND, LIMIT, SCHEDULE})


class Setting(Struct, frozen=True, kw_only=True):
    """One setting. ``until`` is its expiry; None for never."""

    name: str
    value: bytes
    version: int
    until: Instant | None = None

    def __repr__(self) -> str:
        """Without the value, which may be a secret."""
        return f"Setting({self.name!r}, {len(self.value)} bytes, version={self.version})"


Change: TypeAlias = Callable[[Setting | None, Instant], bytes | None]
"""The new value of a setting, from the current one and store time; None leaves it as it is. Without
side effects: a store may call it again after a rollback."""


class SettingStore(Protocol):
    """The contract for settings."""

    async def get(self, namespace: str, name: str) -> Setting | None:
        """The setting of that name; None without one."""
        ...

    async def all(self, namespace: str) -> list[Setting]:
        """All settings of a namespace, by name."""
        ...

    async def put(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        """Store or replace a value. With ``ttl_s`` it expires that long after now."""
        ...

    async def update(
        self, namespace: str, changes: Mapping[str, Change], *, ttl_s: float | None = None
    ) -> dict[str, Setting | None]:
        """Read, change and write settings in one transaction; the settings afterwards, by name.

        * Concurrent updates of one name happen one after the other: each change gets the value
          that the one before it wrote.
        * A change that returns None writes nothing, and raises no control version.
        * An exception of a change goes to the caller, and nothing at all is written.
        * What is written expires after ``ttl_s``, as with ``put``.
        """
        ...

    async def delete(self, namespace: str, name: str) -> bool:
        """Delete a setting; whether there was one. The gate of a queue and the history of a
        schedule are deleted with it."""
        ...

    async def trim(self, namespace: str, *, keep: int) -> int:
        """Of the settings of a namespace that expire, keep the ``keep`` that expire last and delete
        the others; how many were deleted. Settings without an expiry stay."""
        ...

    async def purge(self, *, limit: int) -> int:
        """Delete up to ``limit`` expired settings; how many."""
        ...


async def put_if_absent(
    settings: SettingStore, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
) -> Setting:
    """Store a value unless there is one; the setting afterwards. Concurrent callers all get the
    same answer."""

    def change(current: Setting | None, now: Instant) -> bytes | None:
        return value if current is None else None

    setting = (await settings.update(namespace, {name: change}, ttl_s=ttl_s))[name]
    assert setting is not None
    return setting


T = TypeVar("T", bound=Struct)
TypedChange: TypeAlias = Callable[[T | None, Instant], T | None]


class TypedSettings(Generic[T]):
    """The settings of one typed namespace, as structs."""

    def __init__(self, settings: SettingStore, namespace: str, struct: type[T]) -> None:
        self._settings = settings
        self._namespace = namespace
        self._decode = msgspec.json.Decoder(struct).decode

    async def get(self, name: str) -> T | None:
        """The struct of that name; None without one."""
        setting = await self._settings.get(self._namespace, name)
        return None if setting is None else self._decode(setting.value)

    async def all(self) -> list[T]:
        """All structs, by name."""
        return [self._decode(one.value) for one in await self._settings.all(self._namespace)]

    async def update(self, name: str, change: TypedChange[T]) -> T:
        """Change one struct; the struct afterwards. KeyError if there is none even then."""
        return (await self.update_many({name: change}))[name]

    async def update_many(self, changes: Mapping[str, TypedChange[T]]) -> dict[str, T]:
        """The same for several, in one transaction."""
        wrapped = {name: self._wrapped(change) for name, change in changes.items()}
        settings = await self._settings.update(self._namespace, wrapped)
        return {name: self._decode(one.value) for name, one in settings.items() if one is not None}

    async def delete(self, name: str) -> bool:
        """Delete a struct; whether there was one."""
        return await self._settings.delete(self._namespace, name)

    def _wrapped(self, change: TypedChange[T]) -> Change:
        def changed(current: Setting | None, now: Instant) -> bytes | None:
            struct = change(None if current is None else self._decode(current.value), now)
            return None if struct is None else msgspec.json.encode(struct)

        return changed
