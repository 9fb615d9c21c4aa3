"""Maps errors of the driver to ours: had the call an effect, may it be repeated, what can be done.

An error reply from the server means that the statement was rolled back. After a lost connection the
effect is unknown, if the statement could have committed.
"""

import asyncio
from typing import Final

from forge_jobs.core.errors import (
    BadUrl,
    Closed,
    Corrupt,
    ForgeError,
    Full,
    Invalid,
    NotWritable,
    SchemaMismatch,
    Unavailable,
    Unknown,
)
from forge_jobs.kit import redact

OLDEST_SERVER: Final = 13
_RETRIED: Final = frozenset({"40001", "40P01"})
LOCK_TIMEOUT: Final = "55P03"
_FULL: Final = frozenset({"53100", "53200"})
_PRIVILEGE: Final = "42501"
_NO_OBJECT: Final = frozenset({"42P01", "3F000", "42883", "42703"})
_BAD_DATA: Final = ("22",)
_LOGIN: Final = frozenset({"28P01", "28000"})
_TOO_MANY_CONNECTIONS: Final = "53300"
_READ_ONLY: Final = "25006"
_BAD_SETTING: Final = frozenset({"42704", "22023"})
_AFTER_COMMIT: Final = ("COMMIT", "PERFORM")
_REFUSED_PARAMETER: Final = "unsupported startup parameter"
NO_DATABASE: Final = "3D000"


def code_of(error: BaseException) -> str | None:
    """The SQLSTATE of an error reply from the server; None for any other error."""
    code = _sqlstate(error)
    # Class 08 (lost connection) is set by the driver, not by the server.
    if not isinstance(code, str) or code.startswith("08"):
        return None
    return code


def _sqlstate(error: BaseException) -> object:
    """psycopg2 has another name for it."""
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def is_lost(error: BaseException) -> bool:
    """Whether the connection was lost, or no reply came in time."""
    if isinstance(error, (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError)):
        return True
    code = _sqlstate(error)
    if isinstance(code, str):
        return code.startswith(("08", "57P"))
    return type(error).__name__ in ("InterfaceError", "InternalClientError", "ProtocolError")


def may_repeat(error: BaseException) -> bool:
    """Whether the same transaction may succeed when it is run again at once."""
    return code_of(error) in _RETRIED


def is_lock_timeout(error: BaseException) -> bool:
    """Whether a call failed because another transaction held a lock for too long."""
    return code_of(error.__cause__ or error) == LOCK_TIMEOUT


def may_follow_commit(error: BaseException, procedure: str) -> bool:
    """Whether a procedure that commits before it ends may have failed after its first commit.

    The server's error says which statement of the procedure failed. Up to the first commit there is
    no COMMIT and no PERFORM, and nothing else after it. An error that says nothing of the
    procedure, such as one of the last commit, may have followed.
    """
    cause = error.__cause__ or error
    if code_of(cause) is None:
        return False
    frames = [
        line
        for line in str(getattr(cause, "context", None) or "").splitlines()
        if f"{procedure}(" in line
    ]
    return not frames or frames[-1].endswith(_AFTER_COMMIT)


def translated(error: BaseException, *, location: str, may_have_committed: bool) -> ForgeError:
    """The error for the caller.

    ``may_have_committed``: a statement that commits had been sent when the error occurred.
    """
    if isinstance(error, ForgeError):
        return error
    code = code_of(error)
    if code is None:
        return _lost(error, location, may_have_committed)
    return _from_reply(code, error, location)


def cannot_connect(
    error: BaseException, *, location: str, database: str, first: bool
) -> ForgeError:
    """The error for the caller when no connection could be opened.

    ``first``: no connection to this address has succeeded yet, so a retry will not help.
    """
    if isinstance(error, ForgeError):
        return error
    code = code_of(error)
    if code in _LOGIN:
        text = f"{location} refused the login: check user and password of the address"
        return NotWritable(text) if first else Unavailable(text)
    if code == NO_DATABASE:
        text = f"{location}: database {database!r} does not exist: create it with forge db create"
        return NotWritable(text) if first else Unavailable(text)
    if code is None and isinstance(error, ValueError):
        return BadUrl(f"{location}: {_line(error)}")
    if code in _BAD_SETTING:
        return BadUrl(f"{location}: {_line(error)}: take that option out of the address")
    if _REFUSED_PARAMETER in str(error):
        return BadUrl(f"{location}: {_line(error)}: a pooler answers: write pooler=on")
    if code == _TOO_MANY_CONNECTIONS:
        return Unavailable(f"{location}: {_line(error)}: raise max_connections, or use a pooler")
    why = "it did not answer in time" if isinstance(error, TimeoutError) else _line(error)
    return Unavailable(
        f"{location} cannot be reached: {why}: check host and port of the address, and that the "
        "server runs"
    )


def closed(location: str) -> Closed:
    """The error for a call to a store that was closed or never opened."""
    return Closed(f"the store at {location} is not open: call open() first")


def not_unicode(location: str, encoding: str) -> NotWritable:
    """The error for a database that cannot store all of Unicode, as payloads and errors need."""
    return NotWritable(
        f"{location}: the database has the encoding {encoding} and UTF8 is needed: create another "
        "with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
    )


def _from_reply(code: str, error: BaseException, location: str) -> ForgeError:
    text = _line(error)
    if code in _FULL:
        return Full(f"{location} has no room left: {text}")
    if code == _PRIVILEGE:
        return NotWritable(
            f"{location}: {text}: have it granted to the user of the address, or let its owner run "
            "forge db migrate"
        )
    if code in _NO_OBJECT:
        return SchemaMismatch(f"{location}: {text}: run forge db migrate")
    if code == _READ_ONLY:
        return Unavailable(
            f"{location}: {text}: give the address of the primary, and a user without "
            "default_transaction_read_only"
        )
    if code == LOCK_TIMEOUT:
        return Unavailable(
            f"{location}: another transaction holds a lock for too long (a dedupe key, a limit, or "
            "a whole table): try again"
        )
    if code.startswith(_BAD_DATA):
        return Invalid(f"a value cannot be stored: {text}")
    if code in ("XX001", "XX002"):
        return Corrupt(f"{location} reports damaged data: {text}")
    return Unavailable(f"{location}: {text}")


def _lost(error: BaseException, location: str, may_have_committed: bool) -> ForgeError:
    if not is_lost(error) and isinstance(error, (ValueError, TypeError)):
        return Invalid(f"a value cannot be stored: {_line(error)}")
    what = "did not answer in time" if isinstance(error, TimeoutError) else "broke the connection"
    if may_have_committed:
        return Unknown(f"{location} {what}: the call may have had its effect")
    return Unavailable(f"{location} {what}: the call had no effect")


def _line(error: BaseException) -> str:
    """The first line of a message, with secrets redacted."""
    text = str(error).strip() or type(error).__name__
    return redact.text(text.splitlines()[0])
