"""The declarations of pages and forms, which ``app`` turns into routes."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

Params: TypeAlias = Mapping[str, str]
TemplateVars: TypeAlias = Mapping[str, Any]


class PageSpec(Struct, frozen=True, kw_only=True):
    """One page. ``view`` returns the variables of its template; ``key`` follows ``g`` as its
    shortcut; ``nav_parent`` is the page to highlight in the navigation."""

    path: str
    name: str
    title: str
    template: str
    view: Callable[[RequestContext, Params], Awaitable[TemplateVars]]
    key: str = ""
    role: Role = Role.VIEWER
    live: bool = True
    nav: bool = True
    nav_parent: str = ""


class Notice(Struct, frozen=True):
    """The result of an action in one sentence, and the ``forge`` command and the API call (with
    curl) that have the same effect."""

    text: str
    command: str = ""
    bad: bool = False
    curl: str = ""


class FormSpec(Struct, frozen=True, kw_only=True):
    """A form: ``act`` gets its fields and path parameters."""

    path: str
    role: Role
    act: Callable[[RequestContext, Params], Awaitable[Notice]]
