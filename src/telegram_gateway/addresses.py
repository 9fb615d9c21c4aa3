"""Decides which addresses the http handler may connect to (SSRF protection).

The host name is resolved once and every address it has is checked. The connection then goes to a
checked address, not to the name: a second DNS lookup could return another address.
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
# Metadata services of cloud providers, which serve credentials. No setting of a bot allows them.
_METADATA: Final[Networks] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "100.100.100.200/32",
        "168.63.129.16/32", "192.0.0.192/32", "fd20:ce::254/128",
    )
)  # fmt: skip
# Deprecated, but still private: Python calls these addresses global.
_SITE_LOCAL: Final = ipaddress.ip_network("fec0::/10")
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE: Final = ipaddress.ip_network("::/96")
_NUMERIC: Final = re.compile(r"(0x[0-9a-f]*|\d+)(\.(0x[0-9a-f]*|\d+)){0,3}", re.IGNORECASE)
_DOTS: Final = str.maketrans({"。": ".", "．": ".", "｡": "."})


class ForbiddenAddress(Exception):
    """The address must not be called. The message does not contain the address."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A checked target: ``url`` contains the IP address instead of the name; the name goes into the
    Host header and TLS SNI."""

    url: str
    host_header: str
    tls_name: str


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Resolve a host name with the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def checked_endpoint(
    url: str, networks: Networks | None, resolve: Resolve = resolve_host
) -> Endpoint:
    """Resolve and check a URL. Raises ForbiddenAddress if any address of the name is not allowed,
    OSError if the name has no address."""
    parts = _parse_url(url)
    host = _normalize_host(parts.hostname or "")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    literal = _parse_literal(host)
    found = (
        [literal]
        if literal is not None
        else [_parse_address(text) for text in await resolve(host, port)]
    )
    if not found:
        raise OSError("the name has no address")
    for address in found:
        if not is_allowed(address, networks):
            raise ForbiddenAddress(_refusal(address, networks))
    host_text = f"[{found[0]}]" if isinstance(found[0], IPv6Address) else str(found[0])
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Endpoint(f"{parts.scheme}://{host_text}:{port}{path}", parts.netloc, host)


def _refusal(address: Address, networks: Networks | None) -> str:
    """Why the address is not allowed, and the setting that allows it, if there is one."""
    if networks is None and is_allowed(address, ()):
        return (
            "the service has an internal address, and its bot allows public ones only: write "
            "network: private, or a list of networks, beside its url in bots.yaml"
        )
    if networks and is_allowed(address, ()):
        return (
            "the service's address is not in the networks that its bot allows: add its network to "
            "the list beside its url in bots.yaml"
        )
    return "the service has an address that no setting allows, such as a metadata service's"


def is_allowed(address: Address, networks: Networks | None) -> bool:
    """Whether a bot with these networks may call this address."""
    forms = _address_forms(address)
    if any(form in network for form in forms for network in _METADATA):
        return False
    if any(form.is_multicast or form.is_unspecified for form in forms):
        return False
    if networks is None:
        return all(
            form.is_global and not form.is_reserved and form not in _SITE_LOCAL for form in forms
        )
    if networks:
        return any(forms[-1] in network for network in networks)
    return not any(form.is_reserved and not form.is_private for form in forms)


def _parse_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_valid = parts.port != 0 and parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        raise ForbiddenAddress("the service's URL cannot be read") from None
    if not is_valid or parts.username is not None or parts.password is not None or "\\" in url:
        raise ForbiddenAddress("the service's URL must be http or https with a host and no user")
    return parts


def _normalize_host(host: str) -> str:
    """Normalize a host as resolvers do: full-width digits and dots become ASCII ones."""
    plain = unicodedata.normalize("NFKC", host).translate(_DOTS).rstrip(".").lower()
    if not plain or "%" in plain or not plain.isprintable() or " " in plain:
        raise ForbiddenAddress("the service's host is not a name")
    try:
        return plain if plain.isascii() else plain.encode("idna").decode("ascii")
    except UnicodeError:
        raise ForbiddenAddress("the service's host is not a name") from None


def _parse_literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    if not _NUMERIC.fullmatch(host):
        return None
    try:
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        raise ForbiddenAddress("the service's host is not a valid address") from None


def _parse_address(text: str) -> Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise ForbiddenAddress("the service's name does not resolve to an address") from None


def _address_forms(address: Address) -> list[Address]:
    """The address and the IPv4 address embedded in it, if any (mapped, 6to4, Teredo, NAT64)."""
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
