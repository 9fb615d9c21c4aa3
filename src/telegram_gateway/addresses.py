"""Which addresses the http handler may connect to.

A name is resolved here, every address it has is judged, and the connection goes to an address that
was judged: a second look-up could give another one.
"""

import asyncio
import ipaddress
import re
import socket
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

from .config.bot import Networks

Address: TypeAlias = IPv4Address | IPv6Address
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
# Where clouds hand out credentials; they stay closed whatever a bot's settings say.
_METADATA: Final[Networks] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "100.100.100.200/32",
        "168.63.129.16/32", "192.0.0.192/32", "fd20:ce::254/128",
    )
)  # fmt: skip
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE: Final = ipaddress.ip_network("::/96")
_NUMERIC: Final = re.compile(r"(0x[0-9a-f]*|\d+)(\.(0x[0-9a-f]*|\d+)){0,3}", re.IGNORECASE)
_DOTS: Final = str.maketrans({"。": ".", "．": ".", "｡": "."})


class Forbidden(Exception):
    """This address must not be called; the message names no address."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to connect, and what to say there: ``url`` has the address in place of the name."""

    url: str
    host_header: str
    tls_name: str


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, by the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def checked_endpoint(
    url: str, networks: Networks | None, resolve: Resolve = resolve_host
) -> Endpoint:
    """Where a request may go. Forbidden if any of the name's addresses is closed; OSError when the
    name has none."""
    parts = _parts(url)
    host = _plain(parts.hostname or "")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    literal = _literal(host)
    found = (
        [literal] if literal is not None else [_read(text) for text in await resolve(host, port)]
    )
    if not found:
        raise OSError("the name has no address")
    for address in found:
        if not is_open(address, networks):
            raise Forbidden("the service's address is not in the networks that its bot allows")
    shown = f"[{found[0]}]" if isinstance(found[0], IPv6Address) else str(found[0])
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Endpoint(f"{parts.scheme}://{shown}:{port}{path}", parts.netloc, host)


def is_open(address: Address, networks: Networks | None) -> bool:
    """Whether a bot with these networks may call this address."""
    forms = _forms(address)
    if any(form in network for form in forms for network in _METADATA):
        return False
    if any(form.is_multicast or form.is_unspecified for form in forms):
        return False
    if networks is None:
        return all(form.is_global and not form.is_reserved for form in forms)
    if networks:
        return any(forms[-1] in network for network in networks)
    return not any(form.is_reserved and not form.is_private for form in forms)


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        fits = parts.port != 0 and parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        raise Forbidden("the service's URL cannot be read") from None
    if not fits or parts.username is not None or parts.password is not None or "\\" in url:
        raise Forbidden("the service's URL must be http or https with a host and no user")
    return parts


def _plain(host: str) -> str:
    """The host as every resolver would read it: wide digits and dots are ordinary ones."""
    plain = unicodedata.normalize("NFKC", host).translate(_DOTS).rstrip(".").lower()
    if not plain or "%" in plain or not plain.isprintable() or " " in plain:
        raise Forbidden("the service's host is not a name")
    try:
        return plain if plain.isascii() else plain.encode("idna").decode("ascii")
    except UnicodeError:
        raise Forbidden("the service's host is not a name") from None


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    if not _NUMERIC.fullmatch(host):
        return None
    try:
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        raise Forbidden("the service's host is no address") from None


def _read(text: str) -> Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise Forbidden("the service's name leads to no address") from None


def _forms(address: Address) -> list[Address]:
    """The address, and the one that it carries inside, if any; the innermost comes last."""
    forms: list[Address] = [address]
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address.teredo is not None:
            inner = address.teredo[1]
        if inner is None and (address in _NAT64 or (address in _COMPATIBLE and int(address) > 1)):
            inner = IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            forms.append(inner)
    return forms
