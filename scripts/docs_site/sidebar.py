"""The navigation of every page, made from the sections of docs/README.md.

Sphinx would make it anew for each page from all headings of all pages, which takes half of the time
of a build. The theme calls ``toctree`` of the page's context; this is one that knows the sections.
"""

import html
from pathlib import Path
from typing import Any

from . import navigation
from .staging import site_path

ROOT = Path(__file__).resolve().parents[2]


def setup(app: Any) -> dict[str, Any]:
    """Called by Sphinx; before the theme, which has the default priority of 500."""
    listed = {
        section: [(one.label, site_path(one.path).with_suffix("").as_posix()) for one in entries]
        for section, entries in navigation.sections(ROOT).items()
    }

    def add(_app: Any, page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
        context["toctree"] = lambda **_options: _navigation(listed, page, context["pathto"])

    app.connect("html-page-context", add, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _navigation(listed: dict[str, list[tuple[str, str]]], page: str, path_to: Any) -> str:
    # Each decision is shown below the page that lists them.
    shown = "decisions/index" if page.startswith("decisions/") else page
    parts: list[str] = []
    for section, entries in listed.items():
        caption = f'<span class="caption-text">{html.escape(section)}</span>'
        items = "".join(_item(label, name, name == shown, path_to) for label, name in entries)
        parts.append(f'<p class="caption">{caption}</p><ul>{items}</ul>')
    return "".join(parts)


def _item(label: str, name: str, is_current: bool, path_to: Any) -> str:
    current = " current" if is_current else ""
    href = html.escape(path_to(name) if name else "#")
    return (
        f'<li class="toctree-l1{current}"><a class="{current.strip()} reference internal" '
        f'href="{href}">{html.escape(label)}</a></li>'
    )
