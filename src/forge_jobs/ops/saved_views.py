"""Saved views: named query lines of a store, for everybody who looks at its lists.

A view is a setting of the namespace ``saved_view``: the JSON of its query line.
"""

from typing import Final

import msgspec

from forge_jobs.core import job_query
from forge_jobs.core.errors import BadOption, Full, NotFound
from forge_jobs.core.instant import Instant
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.settings import Setting
from forge_jobs.store.store import Store

from .audit import Actor, Audit, AuditTrail
from .views import View

NAMESPACE: Final = "saved_view"
MAX_VIEWS: Final = 100
MAX_NAME: Final = 60


class SavedView(View, frozen=True, kw_only=True):
    """A named query line."""

    name: str
    query: str


async def saved_views(store: Store) -> tuple[SavedView, ...]:
    """All views of a store, by name."""
    return tuple(_decoded(one) for one in await store.settings.all(NAMESPACE))


async def saved_view(store: Store, name: str) -> SavedView:
    """One view; NotFound without it."""
    found = await store.settings.get(NAMESPACE, _checked(name))
    if found is None:
        raise NotFound(f"there is no saved view {name!r}: see `forge views list`")
    return _decoded(found)


class SavedViewActions:
    """Saves and deletes views; ``actor`` is the name in the audit."""

    def __init__(
        self,
        store: Store,
        *,
        actor: str | Actor,
        audit: Audit | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        self._trail = AuditTrail(store, actor, audit, clock)

    async def save(self, name: str, query: str) -> SavedView:
        """Save a query under a name, in place of an earlier one. BadOption for a query that does
        not parse, Full beside 100 others."""
        name = _checked(name)
        line = str(job_query.parse(query))
        if not line:
            raise BadOption("an empty query shows every job: give one, such as status:dead")
        known = {one.name: one for one in await saved_views(self._store)}
        if name not in known and len(known) >= MAX_VIEWS:
            raise Full(f"there are {MAX_VIEWS} saved views: delete one with `forge views delete`")
        saved = SavedView(name=name, query=line)

        def change(current: Setting | None, now: Instant) -> bytes:
            return msgspec.json.encode({"query": line})

        await self._store.settings.update(NAMESPACE, {name: change})
        before = {"query": known[name].query} if name in known else {}
        await self._trail.record("save view", name, before=before, after={"query": line})
        return saved

    async def delete(self, name: str) -> None:
        """Delete a view; NotFound without it."""
        found = await saved_view(self._store, name)
        await self._store.settings.delete(NAMESPACE, found.name)
        await self._trail.record("delete view", found.name, before={"query": found.query})


def _checked(name: str) -> str:
    text = name.strip()
    if not 0 < len(text) <= MAX_NAME or not text.isprintable() or "/" in text:
        raise BadOption(f"name {name[:80]!r}: use 1 to {MAX_NAME} characters and no /")
    return text


def _decoded(setting: Setting) -> SavedView:
    return SavedView(name=setting.name, query=msgspec.json.decode(setting.value)["query"])
