"""Signatures of outgoing requests, as Standard Webhooks describes them."""

import base64
import binascii
import hashlib
import hmac
from typing import Final

_PREFIX: Final = "whsec_"
_SHORTEST: Final = 24
_LONGEST: Final = 64


def read_signing_secret(text: str) -> bytes | None:
    """The key in ``whsec_`` and base64; None for anything else."""
    if not text.startswith(_PREFIX):
        return None
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if _SHORTEST <= len(key) <= _LONGEST else None


def signed_headers(
    keys: tuple[bytes, ...], *, message_id: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """The three headers; one signature per key while a secret is being replaced."""
    head = f"{message_id}.{timestamp}.".encode()
    signatures = [
        "v1," + base64.b64encode(hmac.new(key, head + body, hashlib.sha256).digest()).decode()
        for key in keys
    ]
    headers = {"webhook-id": message_id, "webhook-timestamp": str(timestamp)}
    if signatures:
        headers["webhook-signature"] = " ".join(signatures)
    return headers
