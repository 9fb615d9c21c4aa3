"""The parity page is complete, and every test it names exists."""

import ast
import re
from pathlib import Path

ABILITIES = 126
GATEWAY = 22
PULL_QUEUE = 13
FAULTS = {
    *(f"A{n}" for n in range(1, 29)),
    *(f"H{n}" for n in range(1, 4)),
    *(f"M{n}" for n in range(1, 7)),
    *(f"L{n}" for n in range(1, 13)),
}
COMMAND = re.compile(r"`make (bench|storm|sim)`")
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def rows(project_root: Path) -> dict[str, str]:
    """The last column of each line of the page, by its id."""
    found: dict[str, str] = {}
    for line in (project_root / "docs" / "parity.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and re.fullmatch(r"\d+|[AHMLTQ]\d+", cells[0]):
            assert cells[0] not in found, f"{cells[0]} is listed twice"
            found[cells[0]] = cells[2]
    return found


def test_every_feature_and_every_defect_is_listed(project_root: Path) -> None:
    wanted = {str(n) for n in range(1, ABILITIES + 1)} | FAULTS
    wanted |= {f"T{n}" for n in range(1, GATEWAY + 1)} | {f"Q{n}" for n in range(1, PULL_QUEUE + 1)}
    assert set(rows(project_root)) == wanted


def test_every_line_names_a_test_or_a_command(project_root: Path) -> None:
    bare = [
        name
        for name, shown in rows(project_root).items()
        if not any(form.search(shown) for form in (NAMED, COMMAND)) and shown != "left out"
    ]
    assert not bare, f"nothing is named for {', '.join(bare)}"


def test_every_named_test_exists(project_root: Path) -> None:
    missing: list[str] = []
    known: dict[str, set[str]] = {}
    for row, shown in rows(project_root).items():
        for path, name in NAMED.findall(shown):
            if path not in known:
                known[path] = _tests(project_root / path)
            if name not in known[path]:
                missing.append(f"{row}: {path}::{name}")
    assert not missing, "\n".join(missing)


def _tests(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    nodes = ast.walk(ast.parse(path.read_text()))
    return {
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }
