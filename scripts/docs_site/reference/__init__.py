"""The pages of docs/reference, made from the code: `python -m scripts.docs_site.reference`.

They are committed, so that they can be read and linked to in the repository and so that a change of
the interface shows in its diff; tests/docs/test_reference.py fails when one is not up to date.
"""

from pathlib import Path
from typing import Final

from . import (
    command_line,
    configuration,
    error_codes,
    gateway,
    http_routes,
    links,
    metric_names,
    python_names,
)

FOLDER: Final = Path("docs/reference")
COMMAND: Final = "python -m scripts.docs_site.reference"
_NOTE: Final = f"<!-- Made from the code by `{COMMAND}`: do not edit. -->\n\n"


def pages() -> dict[str, str]:
    """The text of each page, by file name."""
    made = {
        **python_names.pages(),
        "cli.md": command_line.page(),
        "configuration.md": configuration.page(),
        "errors.md": error_codes.page(),
        "gateway.md": gateway.page(),
        "http.md": http_routes.page(),
        "metrics.md": metric_names.page(),
    }
    targets = links.targets(made)
    return {
        name: _NOTE + links.with_links(name, text, targets).rstrip() + "\n"
        for name, text in made.items()
    }


def write(root: Path) -> list[Path]:
    """Write the pages; the files that changed."""
    changed: list[Path] = []
    for name, text in pages().items():
        path = root / FOLDER / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed
