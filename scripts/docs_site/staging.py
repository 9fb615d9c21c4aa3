"""The pages as Sphinx reads them: a copy of docs/ whose links lead to pages of the site.

A README becomes the index of its folder. Files outside docs/ that a page links to become pages too:
Markdown under ``project/`` and ``examples/``, other files as listings under ``files/``. So every
link works without a network and without the repository.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from . import diagrams, navigation

_FENCE: Final = re.compile(r"^( *)(```+|~~~+)")
_LINK: Final = re.compile(r"(?<=\]\()(?!#|<|[a-z][a-z+]*:)([^)\s#]+)(#[^)\s]*)?(?=\))")
_CODE_SPAN: Final = re.compile(r"(`+)(?:(?!\1).)+?\1", re.S)
_COMMENT: Final = re.compile(r"^<!--.*?-->\n", re.M | re.S)
_LANGUAGES: Final = {
    ".py": "python", ".sql": "sql", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".sh": "sh",
    ".json": "json", ".ini": "ini", ".js": "js",
}  # fmt: skip
_PICTURES: Final = frozenset({".png", ".svg", ".jpg", ".gif", ".webp"})


class BadLink(Exception):
    """A link leads nowhere; the text names the page and the target."""


def stage(root: Path, folder: Path) -> None:
    """Write the pages of the site into ``folder``, which is emptied first."""
    root = root.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    _Staging(root, folder, navigation.sections(root)).run()


def site_path(path: Path) -> Path:
    """Where a file of the repository is in the site's pages."""
    top, *rest = path.parts
    if path.suffix in _PICTURES:
        return Path(*rest) if top == "docs" else path
    if path.suffix != ".md":
        return Path("files", f"{path.as_posix()}.md")
    name = "index.md" if path.name == "README.md" and rest else path.name.lower()
    if not rest:
        return Path("project", name)
    return Path(*rest).with_name(name) if top == "docs" else path.with_name(name)


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """The text with ``change`` applied to what is in no fenced block."""
    parts: list[str] = []
    open_fence = ""
    plain: list[str] = []
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line)
        if not open_fence and found:
            parts.append(change("".join(plain)))
            plain.clear()
            open_fence = found.group(2)
            parts.append(line)
        elif open_fence:
            parts.append(line)
            if found and line.strip() == open_fence:
                open_fence = ""
        else:
            plain.append(line)
    parts.append(change("".join(plain)))
    return "".join(parts)


def rewrite_links(text: str, change: Callable[[str, str], str]) -> str:
    """The text with the relative target (and anchor) of each link replaced; code stays."""

    def change_plain(plain: str) -> str:
        # Code spans are put aside, so that a link in backticks stays what it is.
        spans: list[str] = []

        def put_aside(match: re.Match[str]) -> str:
            spans.append(match.group())
            return f"\0{len(spans) - 1}\0"

        kept = _CODE_SPAN.sub(put_aside, plain)
        kept = _LINK.sub(lambda match: change(match.group(1), match.group(2) or ""), kept)
        return re.sub("\0(\\d+)\0", lambda match: spans[int(match.group(1))], kept)

    return outside_fences(text, change_plain)


class _Staging:
    def __init__(
        self, root: Path, folder: Path, sections: dict[str, list[navigation.Entry]]
    ) -> None:
        self._root = root
        self._folder = folder
        self._sections = sections
        self._decisions = set(navigation.decisions(root))
        self._listed = {entry.path for entries in sections.values() for entry in entries}
        self._to_do: list[Path] = []
        self._seen: set[Path] = set()

    def run(self) -> None:
        for path in [navigation.INDEX, *self._listed, *navigation.pages(self._root)]:
            self._want(path)
        while self._to_do:
            self._copy(self._to_do.pop())

    def _want(self, path: Path) -> None:
        if path not in self._seen:
            self._seen.add(path)
            self._to_do.append(path)

    def _copy(self, path: Path) -> None:
        target = self._folder / site_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        source = self._root / path
        if path.suffix in _PICTURES:
            shutil.copyfile(source, target)
            return
        if source.is_dir():
            text = self._folder_page(path)
        elif path.suffix == ".md":
            text = self._page(path, source.read_text(encoding="utf-8"))
        else:
            text = _listing(path, source.read_text(encoding="utf-8"))
        if path not in {navigation.INDEX, *self._listed}:
            text = f"---\norphan: true\n---\n\n{text}"
        target.write_text(text, encoding="utf-8")

    def _page(self, path: Path, text: str) -> str:
        text = rewrite_links(text, lambda target, anchor: self._link(path, target) + anchor)
        text = outside_fences(text, lambda plain: _COMMENT.sub("", plain))
        text = diagrams.with_drawings(text)
        if path == navigation.INDEX:
            text += "".join(_tree(*item) for item in self._sections.items())
        elif path in self._decisions:
            # They are not in the navigation, which every page contains: there are too many.
            text += "\n[All decisions](index.md)\n"
        return text

    def _folder_page(self, path: Path) -> str:
        files = sorted(one.name for one in (self._root / path).iterdir() if one.is_file())
        here = site_path(path).parent
        lines = [f"- [{name}]({os.path.relpath(self._target(path, name), here)})" for name in files]
        return "\n".join([f"# {path.name}", "", f"`{path.as_posix()}`", "", *lines, ""])

    def _link(self, page: Path, target: str) -> str:
        try:
            return os.path.relpath(self._target(page.parent, target), site_path(page).parent)
        except BadLink as error:
            raise BadLink(f"{page}: {error}") from None

    def _target(self, folder: Path, name: str) -> Path:
        """The place of a file that a page in ``folder`` names; it becomes a page of the site."""
        found = (self._root / folder / name).resolve()
        if (found / "README.md").is_file():
            found = found / "README.md"
        if not found.exists() or not found.is_relative_to(self._root):
            raise BadLink(f"the link to {name} leads to no file of the repository")
        path = found.relative_to(self._root)
        self._want(path)
        return site_path(path)


def _listing(path: Path, text: str) -> str:
    language = _LANGUAGES.get(path.suffix, "text")
    fence = "`" * 6
    return f"# {path.name}\n\n`{path.as_posix()}`\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _tree(caption: str, entries: list[navigation.Entry]) -> str:
    lines = [f"{one.label} <{site_path(one.path).with_suffix('').as_posix()}>" for one in entries]
    listed = "\n".join(lines)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"
