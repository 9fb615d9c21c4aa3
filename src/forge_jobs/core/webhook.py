"""Signing messages to webhooks, and checking such a signature, as Standard Webhooks does.

The signature covers the id, the time and the body, so that neither a message nor its time can be
changed, and an old message cannot be sent again after the tolerated age.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from .errors import BadOption

MAX_AGE_S: Final = 300
ID_HEADER: Final = "webhook-id"
TIME_HEADER: Final = "webhook-timestamp"
SIGNATURE_HEADER: Final = "webhook-signature"
_PREFIX: Final = "whsec_"
_VERSION: Final = "v1"


def signed_headers(secret: str | None, message_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """The headers of a message; without a signature if there is no secret."""
    headers = {ID_HEADER: message_id, TIME_HEADER: str(at_s)}
    if secret is not None:
        headers[SIGNATURE_HEADER] = f"{_VERSION},{_signature(secret, message_id, at_s, body)}"
    return headers


def verify_webhook(
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now_s: float,
    max_age_s: int = MAX_AGE_S,
) -> str:
    """The id of a message whose signature is right; BadOption for any other.

    ``body`` are the bytes as they came, ``now_s`` the present time in seconds since 1970. The
    comparison takes the same time wherever the signatures differ. A receiver drops a message whose
    id it has seen.

    >>> headers = {
    ...     "webhook-id": "msg_1",
    ...     "webhook-timestamp": "1893456000",
    ...     "webhook-signature": "v1,k4Jrk7+NNEdinbN3nSvm1C4KHBO4e5pw/fWinVDphc4=",
    ... }
    >>> verify_webhook("whsec_c2VjcmV0", headers, b"{}", now_s=1893456001)
    'msg_1'
    """
    given = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, at_s = given[ID_HEADER], int(given[TIME_HEADER])
        signatures = given[SIGNATURE_HEADER].split()
    except (KeyError, ValueError):
        raise BadOption("the message has no id, time or signature: it is not from here") from None
    if abs(now_s - at_s) > max_age_s:
        raise BadOption(f"the message is more than {max_age_s} s old, or from the future")
    expected = f"{_VERSION},{_signature(secret, message_id, at_s, body)}".encode()
    matches = [hmac.compare_digest(one.encode(), expected) for one in signatures]
    if not any(matches):
        raise BadOption("the signature of the message is wrong: compare the secrets of both sides")
    return message_id


def _signature(secret: str, message_id: str, at_s: int, body: bytes) -> str:
    signed = f"{message_id}.{at_s}.".encode() + body
    return base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()


def _key(secret: str) -> bytes:
    """The key of a secret: what follows ``whsec_`` is base64; any other text is taken as it is."""
    if secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()
