"""What is configured: passwords by role, and tokens by their hash."""

import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Final

from forge_jobs.core.errors import BadConfig

from .hashes import hash_token, is_hash, password_fits, stretch
from .identity import Identity, Role, role_named

_PASSWORDS: Final = {
    "FORGE_WEB_PASSWORD": Role.ADMIN,
    "FORGE_WEB_PASSWORD_OPERATOR": Role.OPERATOR,
    "FORGE_WEB_PASSWORD_VIEWER": Role.VIEWER,
}
_SHORTEST: Final = 8


class Credentials:
    """Passwords by role, and tokens by their hash. Who is logged in is kept by the store."""

    def __init__(
        self, passwords: Mapping[Role, str], tokens: Mapping[str, Identity] | None = None
    ) -> None:
        for role, password in passwords.items():
            if not is_hash(password) and len(password) < _SHORTEST:
                raise BadConfig(
                    f"the {role.word} password is shorter than {_SHORTEST} characters: "
                    "choose a longer one"
                )
        self._passwords = dict(sorted(passwords.items(), reverse=True))
        self._tokens = dict(tokens or {})
        self.login = bool(passwords)

    def role_of(self, password: str) -> Role | None:
        """The role that a password opens; dear on purpose."""
        for role, kept in self._passwords.items():
            if _fits(password, kept):
                return role
        return None

    def password_of(self, role: Role) -> str | None:
        """The password or its hash as configured; None for a role without one."""
        return self._passwords.get(role)

    def bearer_of(self, token: str) -> Identity | None:
        """Whose token this is; an empty one is nobody's."""
        return self._tokens.get(hash_token(token)) if token else None


def from_environment(environ: Mapping[str, str] | None = None) -> Credentials | None:
    """What FORGE_WEB_PASSWORD and FORGE_WEB_TOKENS say; None when neither is set."""
    env = os.environ if environ is None else environ
    passwords = {role: env[name] for name, role in _PASSWORDS.items() if env.get(name)}
    tokens = _tokens(env.get("FORGE_WEB_TOKENS", ""))
    return Credentials(passwords, tokens) if passwords or tokens else None


def _tokens(text: str) -> dict[str, Identity]:
    """``name:role:sha256`` entries, separated by commas."""
    tokens: dict[str, Identity] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        parts = entry.split(":")
        if len(parts) != 3 or len(parts[2]) != 64:
            raise BadConfig(
                "FORGE_WEB_TOKENS: each entry is name:role:hash as `forge web token` prints it"
            )
        name, role, hashed = parts
        tokens[hashed.lower()] = Identity(name, role_named(role, source="FORGE_WEB_TOKENS"))
    return tokens


def _fits(password: str, kept: str) -> bool:
    if is_hash(kept):
        return password_fits(password, kept)
    salt = hashlib.sha256(kept.encode()).digest()
    return hmac.compare_digest(stretch(password, salt), stretch(kept, salt))
