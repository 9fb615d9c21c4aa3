"""What a page and a form are, before anything knows how they are served."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

Given: TypeAlias = Mapping[str, str]
Shown: TypeAlias = Mapping[str, Any]


class Page(Struct, frozen=True, kw_only=True):
    """One page. ``view`` gathers what its template shows; ``key`` is pressed after ``g``;
    ``under`` names the page of the navigation that it belongs to."""

    path: str
    name: str
    title: str
    template: str
    view: Callable[[RequestContext, Given], Awaitable[Shown]]
    key: str = ""
    role: Role = Role.VIEWER
    live: bool = True
    nav: bool = True
    under: str = ""


class Notice(Struct, frozen=True):
    """What an action did, in one sentence, and the command that does the same."""

    text: str
    command: str = ""
    bad: bool = False


class Form(Struct, frozen=True, kw_only=True):
    """Something a person can do from a page."""

    path: str
    role: Role
    act: Callable[[RequestContext, Given], Awaitable[Notice]]
