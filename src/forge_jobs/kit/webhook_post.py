"""Sends a message to a webhook without letting its address reach into the private network (SSRF).

The host name is resolved once, every address it has is checked, and the connection goes to a
checked address: a second look-up could return another one. Redirects are not followed, and nothing
of the answer but its status is returned. The caller blocks; it calls from a thread.
"""

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Collection, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

_TIMEOUT_S: Final = 10.0
_SITE_LOCAL: Final = ipaddress.ip_network("fec0::/10")
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE: Final = ipaddress.ip_network("::/96")
# Metadata services, which serve credentials: never, whatever is allowed.
_METADATA: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        "169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "100.100.100.200/32",
        "168.63.129.16/32", "192.0.0.192/32", "fd20:ce::254/128",
    )
)  # fmt: skip
_IpAddress: TypeAlias = IPv4Address | IPv6Address


class NotDelivered(Exception):
    """The receiver did not take the message. The text names no address."""


def post_message(
    url: str, body: bytes, headers: Mapping[str, str], *, private_hosts: Collection[str] = ()
) -> int:
    """Send JSON with POST; the status of the answer, which is from 200 to 299. Any other raises
    NotDelivered.

    ``private_hosts`` are the host names that may have a private address, and that may be spoken to
    without TLS.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".").lower()
    is_listed = host in {one.rstrip(".").lower() for one in private_hosts}
    if parts.scheme != "https" and not is_listed:
        raise NotDelivered(
            "the receiver is reached without TLS: use https, or list its host in FORGE_ALERT_HOSTS"
        )
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        status = _send(parts, host, _checked_address(host, port, is_listed), port, body, headers)
    except TimeoutError:
        raise NotDelivered(f"the receiver did not answer within {_TIMEOUT_S:g} s") from None
    except (OSError, http.client.HTTPException) as error:
        raise NotDelivered(f"the receiver cannot be reached: {type(error).__name__}") from None
    if 300 <= status < 400:
        raise NotDelivered(f"the receiver redirects ({status}): use the address it redirects to")
    if not 200 <= status < 300:
        raise NotDelivered(f"the receiver answered {status}")
    return status


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address, and the IPv4 address inside it, is one of the public internet."""
    return _is_reachable(address) and all(
        one.is_global and not one.is_reserved and one not in _SITE_LOCAL for one in _forms(address)
    )


def _checked_address(host: str, port: int, is_listed: bool) -> str:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(str(entry[4][0])) for entry in found]
    allowed = _is_reachable if is_listed else is_public
    if not addresses or not all(map(allowed, addresses)):
        raise NotDelivered(
            "the receiver has an address that is not public: if that is meant, list its host in "
            "FORGE_ALERT_HOSTS of the workers"
        )
    return str(addresses[0])


def _send(
    parts: SplitResult,
    host: str,
    address: str,
    port: int,
    body: bytes,
    headers: Mapping[str, str],
) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    raw = socket.create_connection((address, port), timeout=_TIMEOUT_S)
    try:
        if parts.scheme == "https":
            raw = ssl.create_default_context().wrap_socket(raw, server_hostname=host)
        connection.sock = raw
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = {"content-type": "application/json", "user-agent": "forge-jobs", **headers}
        connection.request("POST", target, body=body, headers=sent)
        return connection.getresponse().status
    finally:
        connection.close()
        raw.close()


def _is_reachable(address: _IpAddress) -> bool:
    forms = _forms(address)
    return not any(
        one.is_multicast or one.is_unspecified or any(one in network for network in _METADATA)
        for one in forms
    )


def _forms(address: _IpAddress) -> list[_IpAddress]:
    """The address and the IPv4 address embedded in it, if any (mapped, 6to4, Teredo, NAT64)."""
    forms: list[_IpAddress] = [address]
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address.teredo is not None:
            inner = address.teredo[1]
        if inner is None and (address in _NAT64 or (address in _COMPATIBLE and int(address) > 1)):
            inner = IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            forms.append(inner)
    return forms
