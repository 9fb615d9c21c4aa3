"""``llms.txt``: the pages of the site as one list for language models, at the root of the site."""

import posixpath
from pathlib import Path
from typing import Final

from .staging import rewrite_links, site_path

SOURCE: Final = Path("docs/llms.txt")


def write(root: Path, site: Path) -> None:
    """Write the list with links to the pages of the site."""
    text = (root / SOURCE).read_text(encoding="utf-8")
    (site / SOURCE.name).write_text(rewrite_links(text, _address), encoding="utf-8")


def _address(target: str, anchor: str) -> str:
    path = Path(posixpath.normpath((SOURCE.parent / target).as_posix()))
    return site_path(path).with_suffix(".html").as_posix() + anchor
