"""The contract for settings: small named values that outlive the process that wrote them.

A setting has a namespace, a name, a value of up to 64 KiB, a version that every ``put`` raises, and
may have an end. Ends are in store time: past its end a setting is not there, whether or not it was
removed yet. The first users are the key and the sessions of Mission Control, so values are secrets:
nothing prints, logs or exports them.
"""

from typing import Protocol

from msgspec import Struct

from forge_jobs.core.instant import Instant


class Setting(Struct, frozen=True, kw_only=True):
    """One setting as it stands. ``until``: when it ends by itself; None for never."""

    name: str
    value: bytes
    version: int
    until: Instant | None = None

    def __repr__(self) -> str:
        """Without the value, which may be a secret."""
        return f"Setting({self.name!r}, {len(self.value)} bytes, version={self.version})"


class SettingStore(Protocol):
    """Named values."""

    async def get(self, namespace: str, name: str) -> Setting | None:
        """What stands under that name; None for nothing."""
        ...

    async def put(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        """Keep a value, in place of what stood there. With ``ttl_s`` it ends by itself. On the disk
        before this returns."""
        ...

    async def put_if_absent(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        """Keep a value unless one stands there already; what stands afterwards. Of several callers
        at once all get the same answer. On the disk before this returns."""
        ...

    async def delete(self, namespace: str, name: str) -> bool:
        """Remove a setting; whether it stood there. On the disk before this returns."""
        ...

    async def trim(self, namespace: str, *, keep: int) -> int:
        """Of the settings of a namespace that have an end keep ``keep``, those that end last; how
        many were removed. Settings without an end stay."""
        ...

    async def purge(self, *, limit: int) -> int:
        """Remove up to ``limit`` settings whose end has passed; how many."""
        ...
