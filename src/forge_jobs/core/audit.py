"""An entry of the audit: who did what, from where, with which result."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from .instant import Instant

Value: TypeAlias = str | int | float | bool | None

MAX_IDS: Final = 100


class Actor(Struct, frozen=True):
    """Who acts. ``role`` and ``address`` are those of a request; a command has neither."""

    name: str
    role: str | None = None
    address: str | None = None


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One action of an operator.

    ``action`` is a verb such as ``retry``; ``subject`` is what it was applied to. ``before`` and
    ``after`` have the fields that changed. A payload is never recorded, only the names of its
    changed fields. ``ids`` are the first 100 jobs that a bulk action was about. The store assigns
    ``id``; ids rise. Entries of earlier versions lack ``role`` and all after it.
    """

    at: Instant
    actor: str
    action: str
    subject: str
    detail: Mapping[str, Value] = {}
    id: int = 0
    role: str | None = None
    address: str | None = None
    before: Mapping[str, Value] = {}
    after: Mapping[str, Value] = {}
    ids: tuple[str, ...] = ()


def changed_fields(
    before: Mapping[str, Value], after: Mapping[str, Value]
) -> tuple[dict[str, Value], dict[str, Value]]:
    """The fields that differ, with their values before and after.

    >>> changed_fields({"slots": 3, "paused": False}, {"slots": 5, "paused": False})
    ({'slots': 3}, {'slots': 5})
    """
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return (
        {name: before[name] for name in names if name in before},
        {name: after[name] for name in names if name in after},
    )
