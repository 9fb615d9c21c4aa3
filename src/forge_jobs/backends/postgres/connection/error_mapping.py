"""What an error of the driver means: had the call an effect, may it be repeated, what can be done.

An answer from the server means that the statement was rolled back. A lost connection means nothing
of the kind: if the statement could commit by itself, its effect is unknown.
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
LOCK_WAIT: Final = "55P03"
_FULL: Final = frozenset({"53100", "53200"})
_PRIVILEGE: Final = "42501"
_NO_OBJECT: Final = frozenset({"42P01", "3F000", "42883", "42703"})
_BAD_DATA: Final = ("22",)
_LOGIN: Final = frozenset({"28P01", "28000"})
_NO_ROOM: Final = "53300"
_READ_ONLY: Final = "25006"
_BAD_SETTING: Final = frozenset({"42704", "22023"})
_BEHIND: Final = frozenset({"57014", "54000"})
NO_DATABASE: Final = "3D000"


def code_of(error: BaseException) -> str | None:
    """The SQLSTATE of an answer from the server; None for anything else."""
    code = getattr(error, "sqlstate", None)
    # A lost connection is given a code by the driver; the server never said it.
    if not isinstance(code, str) or code.startswith("08"):
        return None
    return code


def is_lost(error: BaseException) -> bool:
    """Whether the connection broke, or did not answer in time."""
    if isinstance(error, (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError)):
        return True
    code = getattr(error, "sqlstate", None)
    if isinstance(code, str):
        return code.startswith(("08", "57P"))
    return type(error).__name__ in ("InterfaceError", "InternalClientError", "ProtocolError")


def may_repeat(error: BaseException) -> bool:
    """Whether the same transaction may succeed when it is run again at once."""
    return code_of(error) in _RETRIED


def is_held_up(error: BaseException) -> bool:
    """Whether a call ended because it had to wait for somebody else's transaction."""
    return code_of(error.__cause__ or error) == LOCK_WAIT


def is_half_done(error: BaseException) -> bool:
    """Whether a call that commits on its way may have failed behind its commit: it was stopped, or
    the server has no room for notifications."""
    return code_of(error.__cause__ or error) in _BEHIND


def meaning(error: BaseException, *, place: str, exposed: bool) -> ForgeError:
    """The error to raise for ``error``.

    ``exposed``: a statement that could commit had been sent when it happened.
    """
    if isinstance(error, ForgeError):
        return error
    code = code_of(error)
    if code is None:
        return _lost(error, place, exposed)
    return _answered(code, error, place)


def cannot_connect(error: BaseException, *, place: str, database: str, first: bool) -> ForgeError:
    """The error to raise when no connection could be made.

    ``first``: nothing ever worked at this address, so waiting will not help.
    """
    if isinstance(error, ForgeError):
        return error
    code = code_of(error)
    if code in _LOGIN:
        text = f"{place} refused the login: check user and password of the address"
        return NotWritable(text) if first else Unavailable(text)
    if code == NO_DATABASE:
        text = f"{place}: database {database!r} does not exist: create it with forge db create"
        return NotWritable(text) if first else Unavailable(text)
    if code is None and isinstance(error, ValueError):
        return BadUrl(f"{place}: {_line(error)}")
    if code in _BAD_SETTING:
        return BadUrl(f"{place}: {_line(error)}: take that option out of the address")
    if code == _NO_ROOM:
        return Unavailable(f"{place}: {_line(error)}: raise max_connections, or use a pooler")
    why = "it did not answer in time" if isinstance(error, TimeoutError) else _line(error)
    return Unavailable(
        f"{place} cannot be reached: {why}: check host and port of the address, and that the "
        "server runs"
    )


def closed(place: str) -> Closed:
    """The store was closed, or never opened."""
    return Closed(f"the store at {place} is not open: call open() first")


def not_unicode(place: str, encoding: str) -> NotWritable:
    """Payloads and messages of any language would not fit."""
    return NotWritable(
        f"{place}: the database has the encoding {encoding} and UTF8 is needed: create another "
        "with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
    )


def _answered(code: str, error: BaseException, place: str) -> ForgeError:
    text = _line(error)
    if code in _FULL:
        return Full(f"{place} has no room left: {text}")
    if code == _PRIVILEGE:
        return NotWritable(
            f"{place}: {text}: have it granted to the user of the address, or let its owner run "
            "forge db migrate"
        )
    if code in _NO_OBJECT:
        return SchemaMismatch(f"{place}: {text}: run forge db migrate")
    if code == _READ_ONLY:
        return Unavailable(
            f"{place}: {text}: give the address of the primary, and a user that may write"
        )
    if code == LOCK_WAIT:
        return Unavailable(f"{place}: another transaction holds the same dedupe key: try again")
    if code.startswith(_BAD_DATA):
        return Invalid(f"a value cannot be stored: {text}")
    if code in ("XX001", "XX002"):
        return Corrupt(f"{place} reports damaged data: {text}")
    return Unavailable(f"{place}: {text}")


def _lost(error: BaseException, place: str, exposed: bool) -> ForgeError:
    if not is_lost(error) and isinstance(error, (ValueError, TypeError)):
        return Invalid(f"a value cannot be stored: {_line(error)}")
    what = "did not answer in time" if isinstance(error, TimeoutError) else "broke the connection"
    if exposed:
        return Unknown(f"{place} {what}: the call may have had its effect")
    return Unavailable(f"{place} {what}: the call had no effect")


def _line(error: BaseException) -> str:
    """The first line of a message, without a password in it."""
    text = str(error).strip() or type(error).__name__
    return redact.text(text.splitlines()[0])
