"""The configured credentials: passwords by role, and tokens by their hash."""

import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Final

from forge_jobs.core.errors import BadConfig

from .hashes import derive_key, hash_token, is_hash, verify_password
from .identity import Identity, Role, parse_role

_PASSWORDS: Final = {
    "FORGE_WEB_PASSWORD": Role.ADMIN,
    "FORGE_WEB_PASSWORD_OPERATOR": Role.OPERATOR,
    "FORGE_WEB_PASSWORD_VIEWER": Role.VIEWER,
}
MIN_PASSWORD_LENGTH: Final = 8


class Credentials:
    """Passwords by role, and tokens by their hash. Sessions are in the store.

    >>> passwords = {web.Role.VIEWER: "look at this", web.Role.ADMIN: "change it all"}
    >>> web.Credentials(passwords).role_of("look at this")
    <Role.VIEWER: 1>
    """

    def __init__(
        self, passwords: Mapping[Role, str], tokens: Mapping[str, Identity] | None = None
    ) -> None:
        for role, password in passwords.items():
            if not is_hash(password) and len(password) < MIN_PASSWORD_LENGTH:
                raise BadConfig(
                    f"the {role.word} password is shorter than {MIN_PASSWORD_LENGTH} characters: "
                    "choose a longer one"
                )
        self._passwords = dict(sorted(passwords.items(), reverse=True))
        self._tokens = dict(tokens or {})
        self.login = bool(passwords)

    def role_of(self, password: str, only: Role | None = None) -> Role | None:
        """The role of a password, or None; with ``only`` that role alone is tried. Deliberately
        expensive (scrypt)."""
        for role, configured in self._passwords.items():
            if only in (None, role) and _password_matches(password, configured):
                return role
        return None

    def password_of(self, role: Role) -> str | None:
        """The password or its hash as configured; None for a role without one."""
        return self._passwords.get(role)

    def bearer_of(self, token: str) -> Identity | None:
        """The identity of a token; None for an unknown or empty one."""
        return self._tokens.get(hash_token(token)) if token else None


def from_environment(environ: Mapping[str, str] | None = None) -> Credentials | None:
    """Credentials from FORGE_WEB_PASSWORD… and FORGE_WEB_TOKENS; None if none is set.

    >>> web.from_environment({}) is None
    True
    """
    env = os.environ if environ is None else environ
    passwords = {role: env[name] for name, role in _PASSWORDS.items() if env.get(name)}
    tokens = _parse_tokens(env.get("FORGE_WEB_TOKENS", ""))
    return Credentials(passwords, tokens) if passwords or tokens else None


def _parse_tokens(text: str) -> dict[str, Identity]:
    """Parse ``name:role:sha256`` entries, separated by commas."""
    tokens: dict[str, Identity] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        parts = entry.split(":")
        if len(parts) != 3 or len(parts[2]) != 64:
            raise BadConfig(
                "FORGE_WEB_TOKENS: each entry is name:role:hash as `forge web token` prints it"
            )
        name, role, hashed = parts
        tokens[hashed.lower()] = Identity(name, parse_role(role, source="FORGE_WEB_TOKENS"))
    return tokens


def _password_matches(password: str, configured: str) -> bool:
    if is_hash(configured):
        return verify_password(password, configured)
    salt = hashlib.sha256(configured.encode()).digest()
    return hmac.compare_digest(derive_key(password, salt), derive_key(configured, salt))
