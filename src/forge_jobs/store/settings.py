"""The contract for settings: small named values that outlive the process that wrote them.

* A setting has a namespace, a name, a value of up to 64 KiB, and a version that every ``put``
  raises. It may have an expiry.
* Expiry is in store time. An expired setting does not exist, whether or not it was deleted yet.
* Values are secrets (the signing key and the sessions of Mission Control): nothing prints, logs or
  exports them.
* A durable call has its effect on disk before it returns.
"""

from typing import Protocol

from msgspec import Struct

from forge_jobs.core.instant import Instant


class Setting(Struct, frozen=True, kw_only=True):
    """One setting. ``until`` is its expiry; None for never."""

    name: str
    value: bytes
    version: int
    until: Instant | None = None

    def __repr__(self) -> str:
        """Without the value, which may be a secret."""
        return f"Setting({self.name!r}, {len(self.value)} bytes, version={self.version})"


class SettingStore(Protocol):
    """The contract for settings."""

    async def get(self, namespace: str, name: str) -> Setting | None:
        """The setting of that name; None without one."""
        ...

    async def put(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        """Store or replace a value. With ``ttl_s`` it expires that long after now. Durable."""
        ...

    async def put_if_absent(
        self, namespace: str, name: str, value: bytes, *, ttl_s: float | None = None
    ) -> Setting:
        """Store a value unless there is one; the setting afterwards. Concurrent callers all get the
        same answer. Durable."""
        ...

    async def delete(self, namespace: str, name: str) -> bool:
        """Delete a setting; whether there was one. Durable."""
        ...

    async def trim(self, namespace: str, *, keep: int) -> int:
        """Of the settings of a namespace that expire, keep the ``keep`` that expire last and delete
        the others; how many were deleted. Settings without an expiry stay."""
        ...

    async def purge(self, *, limit: int) -> int:
        """Delete up to ``limit`` expired settings; how many."""
        ...
