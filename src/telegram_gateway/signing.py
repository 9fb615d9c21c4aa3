"""Signs outgoing requests according to Standard Webhooks."""

import base64
import binascii
import hashlib
import hmac
from typing import Final

_PREFIX: Final = "whsec_"
_MIN_KEY_BYTES: Final = 24
_MAX_KEY_BYTES: Final = 64


def read_signing_secret(text: str) -> bytes | None:
    """Decode a ``whsec_`` secret; None if it is not one or has the wrong length."""
    if not text.startswith(_PREFIX):
        return None
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if _MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES else None


def signed_headers(
    keys: tuple[bytes, ...], *, message_id: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """The three headers, with one signature per key: two keys during a key rotation."""
    head = f"{message_id}.{timestamp}.".encode()
    signatures = [
        "v1," + base64.b64encode(hmac.new(key, head + body, hashlib.sha256).digest()).decode()
        for key in keys
    ]
    headers = {"webhook-id": message_id, "webhook-timestamp": str(timestamp)}
    if signatures:
        headers["webhook-signature"] = " ".join(signatures)
    return headers
