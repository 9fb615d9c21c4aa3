"""Hashes of passwords (scrypt) and of random tokens (SHA-256)."""

import base64
import hashlib
import hmac
from typing import Final

from forge_jobs.core.errors import BadConfig
from forge_jobs.kit.entropy import Entropy

_SALT_BITS: Final = 128
_TOKEN_BITS: Final = 256
_COST: Final = (1 << 15, 8, 1)
_MAX_MEMORY: Final = 64 << 20
_PREFIX: Final = "scrypt$"


def hash_password(password: str, entropy: Entropy) -> str:
    """``scrypt$salt$hash``, for an environment variable or a file."""
    salt = entropy.bits(_SALT_BITS).to_bytes(_SALT_BITS // 8, "big")
    return f"{_PREFIX}{_to_base64(salt)}${_to_base64(derive_key(password, salt))}"


def is_hash(text: str) -> bool:
    """Whether the text is a hash of ``hash_password`` and not a password."""
    return text.startswith(_PREFIX)


def verify_password(password: str, hashed: str) -> bool:
    """Whether the password matches the hash, compared in constant time."""
    salt, expected = _parse_hash(hashed)
    return hmac.compare_digest(derive_key(password, salt), expected)


def derive_key(secret: str, salt: bytes) -> bytes:
    """A scrypt key: expensive to compute, so that guessing is expensive."""
    cost, block_size, parallelism = _COST
    return hashlib.scrypt(
        secret.encode(),
        salt=salt,
        n=cost,
        r=block_size,
        p=parallelism,
        maxmem=_MAX_MEMORY,
        dklen=32,
    )


def new_token(entropy: Entropy) -> str:
    """A random token of 256 bits; shown once and stored as its ``hash_token``."""
    number = entropy.bits(_TOKEN_BITS).to_bytes(_TOKEN_BITS // 8, "big")
    return f"forge_{_to_base64(number)}"


def hash_token(token: str) -> str:
    """The SHA-256 of a token. Tokens are random, so salt and stretching are not needed."""
    return hashlib.sha256(token.encode()).hexdigest()


def _parse_hash(hashed: str) -> tuple[bytes, bytes]:
    try:
        salt, expected = hashed.removeprefix(_PREFIX).split("$")
        return _from_base64(salt), _from_base64(expected)
    except ValueError as error:
        raise BadConfig(
            "the password hash is damaged: make a new one with `forge web password`"
        ) from error


def _to_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _from_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
