"""Failed logins per address and account, or per device, in the store's settings, so that all
processes share them.

An account is a role; an attempt that names no role is an account of its own (``ANY_ROLE``). The
first failures cost nothing but a moment; then each one doubles the pause before the next attempt of
this account from this address. A row is forgotten 15 minutes after the last failure; a successful
login does not reset it, because otherwise the owner of one password could guess another one between
two logins. Failures of an account are also counted over all addresses: many of them pause addresses
that never logged in to it.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.store.settings import Setting
from forge_jobs.store.store import Store

FREE_FAILURES: Final = 5
FREE_IN_TOTAL: Final = 100
ANY_ROLE: Final = "any"
KNOWN_S: Final = 90 * 86_400
MAX_PAUSE_S: Final = 60
MEMORY_S: Final = 900
_NAMESPACE: Final = "web.login"
_KNOWN: Final = "web.login.known"
_MAX_ROWS: Final = 10_000
_PURGE_LIMIT: Final = 500


class FailedLogins(Struct, frozen=True):
    """Failures of one address or device; ``until`` is when it may try again."""

    count: int = 0
    until: Instant = 0


def pause_s(failures: int, free: int = FREE_FAILURES) -> float:
    """The pause after that many failures in a row of 15 minutes.

    >>> [pause_s(n) for n in (1, 5, 6, 7, 8, 99)]
    [0.0, 1.0, 2.0, 4.0, 8.0, 60.0]
    """
    if failures < free:
        return 0.0
    return float(min(MAX_PAUSE_S, 2 ** min(failures - free, 10)))


def source_of(host: str | None) -> str:
    """The name under which failures of an address are counted: an IPv4 address, or the /64 network
    of an IPv6 one, which a single user has."""
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return f"host {host}"[:100]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class LoginAttempts:
    """The failed logins of one store. Errors of the store are raised."""

    def __init__(self, open_store: Callable[[], Awaitable[Store]]) -> None:
        self._open_store = open_store

    async def wait_s(self, source: str) -> float:
        """How long this source must wait before its next attempt; 0 if it may try now."""
        store = await self._open_store()
        row = _decode(await store.settings.get(_NAMESPACE, _name(source)))
        return max(0.0, (row.until - await store.now()) / SECOND) if row.until else 0.0

    async def failed(self, source: str, account: str | None = None) -> FailedLogins:
        """Count a failure of the source, and one of the account over all addresses; concurrent ones
        of several processes are all counted."""
        settings = (await self._open_store()).settings
        changes = {_name(source): partial(_one_more, FREE_FAILURES)}
        if account is not None:
            changes[_name(total_of(account))] = partial(_one_more, FREE_IN_TOTAL)
        await settings.purge(limit=_PURGE_LIMIT)
        rows = await settings.update(_NAMESPACE, changes, ttl_s=MEMORY_S)
        await settings.trim(_NAMESPACE, keep=_MAX_ROWS)
        return _decode(rows[_name(source)])

    async def succeeded(self, address: str, role: str) -> None:
        """Remember that this address has logged in with this role."""
        settings = (await self._open_store()).settings
        for account in (role, ANY_ROLE):
            await settings.put(_KNOWN, _name(f"{address} {account}"), b"{}", ttl_s=KNOWN_S)
        await settings.trim(_KNOWN, keep=_MAX_ROWS)

    async def is_known(self, address: str, account: str) -> bool:
        """Whether this address has logged in to this account within 90 days."""
        settings = (await self._open_store()).settings
        return await settings.get(_KNOWN, _name(f"{address} {account}")) is not None


def total_of(account: str) -> str:
    """The name under which failures of an account are counted over all addresses."""
    return f"total {account}"


def _one_more(free: int, current: Setting | None, now: Instant) -> bytes:
    count = _decode(current).count + 1
    return msgspec.json.encode(FailedLogins(count, now + int(pause_s(count, free) * SECOND)))


def device_cookie(key: bytes, role: str, nonce: str) -> str:
    """A cookie that proves an earlier login with this role from this browser. It grants nothing; it
    counts failures of its browser apart from those of other clients at the same address."""
    return f"{role}.{nonce}.{_device_mark(key, role, nonce)}"


def device_of(key: bytes, cookie: str) -> tuple[str, str] | None:
    """Role and nonce of a device cookie that this store's key signed; else None."""
    role, _, rest = cookie.partition(".")
    nonce, _, mark = rest.partition(".")
    if not cookie.isascii() or not nonce:
        return None
    return (role, nonce) if hmac.compare_digest(mark, _device_mark(key, role, nonce)) else None


def _device_mark(key: bytes, role: str, nonce: str) -> str:
    return hmac.new(key, f"device {role} {nonce}".encode(), hashlib.sha256).hexdigest()


def _name(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def _decode(setting: Setting | None) -> FailedLogins:
    try:
        return FailedLogins() if setting is None else _DECODER.decode(setting.value)
    except msgspec.DecodeError:
        return FailedLogins()


_DECODER: Final = msgspec.json.Decoder(FailedLogins)
