"""Diagrams: blocks of Mermaid become drawings inside the page, with their source below.

They are drawn while the site is built, by Node with what package-lock.json pins: the page needs no
script for them. Their colours are those of the theme, from ``theme/site.css``.
"""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

_BLOCK: Final = re.compile(r"^```mermaid\n(.*?)^```\n", re.M | re.S)
_STYLE: Final = re.compile(r"<style>.*?</style>\n?", re.S)
_SIZE: Final = re.compile(r'viewBox="0 0 (\S+) (\S+)" width="\S+"')
# Labels at the right edge are drawn beyond it.
_MARGIN: Final = 60
_DRAW: Final = Path(__file__).with_name("diagrams.mjs")


class CannotDraw(Exception):
    """The diagrams could not be drawn; the text says why."""


def with_drawings(text: str) -> str:
    """The Markdown of a page with its diagrams drawn."""
    sources = _BLOCK.findall(text)
    if not sources:
        return text
    drawings = iter(zip(sources, _draw(sources), strict=True))
    number = 0

    def replace(_: re.Match[str]) -> str:
        nonlocal number
        number += 1
        source, drawing = next(drawings)
        return _figure(source, drawing, number)

    return _BLOCK.sub(replace, text)


def _draw(sources: list[str]) -> list[str]:
    # scripts/web_assets.py puts a node beside this interpreter where the machine has none.
    path = f"{os.environ.get('PATH', '')}{os.pathsep}{Path(sys.executable).parent}"
    node = shutil.which("node", path=path)
    if node is None:
        raise CannotDraw("Diagrams are drawn by Node, and there is none: run make setup")
    done = subprocess.run(
        [node, str(_DRAW)], input=json.dumps(sources), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CannotDraw(f"A diagram cannot be drawn: {done.stderr.strip()}")
    return json.loads(done.stdout)


def _figure(source: str, drawing: str, number: int) -> str:
    # Its style element would fetch a font and would hold for every drawing of the page.
    svg = _STYLE.sub("", drawing)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="diagram-{number}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#diagram-{number}-\1)", svg)
    svg = re.sub(r"^<svg ", f'<svg role="img" aria-label="Diagram {number}" ', svg.lstrip())
    svg = re.sub(r"\n\s*\n", "\n", svg)
    svg = _SIZE.sub(_wider, svg, count=1)
    return (
        "```{raw} html\n"
        f'<figure class="diagram"><div tabindex="0" role="group" aria-label="Diagram {number}">\n'
        f"{svg}</div>\n<details><summary>The diagram as text</summary>\n"
        f'<pre tabindex="0">{html.escape(source)}</pre></details></figure>\n```\n'
    )


def _wider(match: re.Match[str]) -> str:
    width = float(match.group(1)) + _MARGIN
    return f'viewBox="0 0 {width:g} {match.group(2)}" width="{width:g}"'
