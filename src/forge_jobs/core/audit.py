"""An entry of the audit: actor, action, subject and result."""

from collections.abc import Mapping

from msgspec import Struct

from .instant import Instant


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One action of an operator.

    ``action`` is a verb such as ``retry``; ``subject`` is what it was applied to. A payload is
    never recorded. The store assigns ``id``; ids rise.
    """

    at: Instant
    actor: str
    action: str
    subject: str
    detail: Mapping[str, str | int | float | bool | None] = {}
    id: int = 0
