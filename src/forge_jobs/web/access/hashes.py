"""Passwords and tokens, kept as hashes: scrypt for what people choose, SHA-256 for what we roll."""

import base64
import hashlib
import hmac
from typing import Final

from forge_jobs.core.errors import BadConfig
from forge_jobs.kit.entropy import Entropy

_SALT_BITS: Final = 128
_TOKEN_BITS: Final = 256
_COST: Final = (1 << 15, 8, 1)
_MEMORY: Final = 64 << 20
_PREFIX: Final = "scrypt$"


def hash_password(password: str, entropy: Entropy) -> str:
    """``scrypt$salt$hash``, fit for an environment variable or a file."""
    salt = entropy.bits(_SALT_BITS).to_bytes(_SALT_BITS // 8, "big")
    return f"{_PREFIX}{_text(salt)}${_text(stretch(password, salt))}"


def is_hash(text: str) -> bool:
    """Whether this is a hash of ours and not a password."""
    return text.startswith(_PREFIX)


def password_fits(password: str, hashed: str) -> bool:
    """Whether the password is the one that was hashed; takes the same time either way."""
    salt, wanted = _parts(hashed)
    return hmac.compare_digest(stretch(password, salt), wanted)


def stretch(secret: str, salt: bytes) -> bytes:
    """A key that is dear to guess."""
    cost, block, lanes = _COST
    return hashlib.scrypt(
        secret.encode(), salt=salt, n=cost, r=block, p=lanes, maxmem=_MEMORY, dklen=32
    )


def new_token(entropy: Entropy) -> str:
    """A token nobody can guess; shown once, kept as ``hash_token`` of it."""
    number = entropy.bits(_TOKEN_BITS).to_bytes(_TOKEN_BITS // 8, "big")
    return f"forge_{_text(number)}"


def hash_token(token: str) -> str:
    """Tokens are random, so that a plain hash is enough."""
    return hashlib.sha256(token.encode()).hexdigest()


def _parts(hashed: str) -> tuple[bytes, bytes]:
    try:
        salt, wanted = hashed.removeprefix(_PREFIX).split("$")
        return _bytes(salt), _bytes(wanted)
    except ValueError as error:
        raise BadConfig(
            "the password hash is damaged: make a new one with `forge web password`"
        ) from error


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
