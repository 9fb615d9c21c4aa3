"""The settings that this backend relies on, whatever the role, the database or the server says.

A direct connection has them as startup parameters: they win over ``ALTER ROLE … SET`` and cost no
round trip. A pooler in transaction mode refuses startup parameters and shares its sessions, so
there every transaction sets them again, in the round trip that begins it. Each setting costs time
there, so only those that results depend on are set.

Not set here is what others decide: ``synchronous_commit`` (how durable jobs are; ``forge doctor``
reports it) and ``default_transaction_read_only`` (a provider's protection of a full disk, or a role
that is meant to read only).
"""

from functools import cache
from typing import Final

IDLE_IN_TRANSACTION_S: Final = 30.0
# Statements count on seeing what was committed before they began, not before their transaction did.
_ISOLATION: Final = "read committed"
_SETTINGS: Final = {
    "search_path": "pg_catalog",
    # Calls have time limits of their own, and functions that wait for locks say how long.
    "statement_timeout": "0",
    "lock_timeout": "0",
    # A process that is stopped in the middle of a transaction must not hold its locks for ever.
    "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_S:.0f}s",
}
# On direct connections only, where they cost nothing. Results do not depend on them: statements
# have no backslash outside E'' strings, and the functions of the hot path set what their plans
# need.
_DIRECT: Final = {
    "standard_conforming_strings": "on",
    "extra_float_digits": "1",
    "jit": "off",
    "plan_cache_mode": "auto",
    "enable_bitmapscan": "on",
    "enable_indexscan": "on",
    "enable_indexonlyscan": "on",
    "enable_nestloop": "on",
    "enable_sort": "on",
    "enable_tidscan": "on",
}
# Settings that a server knows from this major on.
_SINCE: Final = {"transaction_timeout": (17, "0")}
_SESSION_SINCE: Final = {"idle_session_timeout": (14, "0")}


@cache
def startup_parameters(major: int | None) -> dict[str, str]:
    """Startup parameters of a direct connection. ``major``: the server's version, if it is known;
    an unknown parameter would be refused."""
    newer = {
        name: value
        for name, (since, value) in {**_SINCE, **_SESSION_SINCE}.items()
        if major is not None and major >= since
    }
    return {"default_transaction_isolation": _ISOLATION, **_SETTINGS, **_DIRECT, **newer}


@cache
def begin_statement(major: int) -> str:
    """What begins a transaction behind a pooler."""
    newer = {name: value for name, (since, value) in _SINCE.items() if major >= since}
    settings = {**_SETTINGS, **newer}.items()
    return f"BEGIN ISOLATION LEVEL {_ISOLATION}; " + "; ".join(
        f"SET LOCAL {name} = '{value}'" for name, value in settings
    )
