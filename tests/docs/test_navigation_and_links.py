"""docs/ as Markdown: every page is in a section, every link and anchor leads somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.docs_site import llms, navigation
from scripts.docs_site.staging import BadLink, outside_fences, rewrite_links, site_path, stage
from tests.repository.test_repository import committed_files

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = ["Start", "Use", "Operate", "Gateway", "Reference", "How it works", "Decisions"]
_HEADING = re.compile(r"^(#+) +(.+?) *$", re.M)


def markdown_files() -> list[Path]:
    found = [path for path in committed_files(ROOT) if path.suffix == ".md"]
    return sorted(path.relative_to(ROOT) for path in found)


def slugs(text: str) -> set[str]:
    """The anchors of the headings, as code hosts and MyST make them."""
    found: set[str] = set()
    for _, title in _HEADING.findall(prose(text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def prose(text: str) -> str:
    """The text without its fenced blocks."""
    kept: list[str] = []
    outside_fences(text, lambda plain: kept.append(plain) or plain)
    return "".join(kept)


def links(path: Path) -> Iterator[tuple[str, str]]:
    """Target and anchor of each relative link."""
    text = (ROOT / path).read_text(encoding="utf-8")
    found: list[tuple[str, str]] = []
    rewrite_links(text, lambda target, anchor: found.append((target, anchor)) or target)
    yield from found
    for anchor in re.findall(r"(?<=\]\()#[^)\s]*(?=\))", prose(text)):
        yield "", anchor


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    broken: list[str] = []
    anchors: dict[Path, set[str]] = {}
    for path in markdown_files():
        for target, anchor in links(path):
            found = (ROOT / path.parent / target).resolve() if target else ROOT / path
            if not found.exists():
                broken.append(f"{path}: {target}")
            elif anchor and found.suffix == ".md":
                if found not in anchors:
                    anchors[found] = slugs(found.read_text(encoding="utf-8"))
                if anchor[1:] not in anchors[found]:
                    broken.append(f"{path}: {target}{anchor}")
    assert broken == []


def test_the_link_check_finds_links() -> None:
    assert ("guarantees.md", "") in set(links(Path("docs/README.md")))
    assert any(anchor for path in markdown_files() for _, anchor in links(path))


def test_the_sections_hold_every_page_once() -> None:
    sections = navigation.sections(ROOT)
    assert list(sections) == SECTIONS
    assert all(sections.values())


def test_the_list_for_language_models_has_every_page() -> None:
    listed: set[Path] = set()
    text = (ROOT / llms.SOURCE).read_text(encoding="utf-8")
    folder = llms.SOURCE.parent
    rewrite_links(text, lambda target, _: listed.add((ROOT / folder / target).resolve()) or target)
    sections = navigation.sections(ROOT)
    entries = [one for name in SECTIONS[:-1] for one in sections[name]]
    assert [one.path.as_posix() for one in entries if ROOT / one.path not in listed] == []
    assert [path for path in listed if not path.is_file()] == []


def copy_of_docs(folder: Path, index: str, *pages: str) -> Path:
    (folder / "docs" / "decisions").mkdir(parents=True)
    (folder / "docs" / "README.md").write_text(index)
    for page in pages:
        (folder / "docs" / page).write_text("# A page\n")
    return folder


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("- [A](a.md): a", "docs/b.md is in no section of docs/README.md"),
        ("- [A](a.md)\n- [B](b.md)\n- [A](a.md)", "docs/a.md is in two sections"),
    ],
)
def test_a_page_in_no_section_fails_the_build(tmp_path: Path, lines: str, complaint: str) -> None:
    root = copy_of_docs(tmp_path, f"# Docs\n\n## Use\n\n{lines}\n", "a.md", "b.md")
    with pytest.raises(navigation.BadNavigation, match=complaint):
        stage(root, tmp_path / "out")


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    root = copy_of_docs(tmp_path, "# Docs\n\n## Use\n\n- [A](a.md): a\n", "a.md")
    (root / "docs" / "a.md").write_text("# A\n\n[gone](../gone.py)\n")
    with pytest.raises(BadLink, match=r"docs/a\.md: the link to \.\./gone\.py leads to no file"):
        stage(root, tmp_path / "out")


def test_files_outside_docs_become_pages(tmp_path: Path) -> None:
    root = copy_of_docs(tmp_path, "# Docs\n\n## Use\n\n- [A](a.md): a\n", "a.md")
    (root / "docs" / "a.md").write_text(
        "# A\n\n[code](../x.py#top), [up](README.md), `[no](link.md)`, [web](https://a.b/c.md)\n\n"
        "```\n[no](link.md)\n```\n<!-- not shown -->\n"
    )
    (root / "x.py").write_text("print('x')\n")
    stage(root, tmp_path / "out")
    page = (tmp_path / "out" / "a.md").read_text()
    assert "[code](files/x.py.md#top), [up](index.md), `[no](link.md)`" in page
    assert "[web](https://a.b/c.md)" in page
    assert "```\n[no](link.md)\n```" in page
    assert "not shown" not in page
    assert "print('x')" in (tmp_path / "out" / "files" / "x.py.md").read_text()


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("docs/README.md", "index.md"),
        ("docs/decisions/README.md", "decisions/index.md"),
        ("docs/images/a.png", "images/a.png"),
        ("docs/images/demo.webp", "images/demo.webp"),
        ("SECURITY.md", "project/security.md"),
        ("examples/README.md", "examples/index.md"),
        ("examples/steps.py", "files/examples/steps.py.md"),
        ("docs/schema/sqlite.sql", "files/docs/schema/sqlite.sql.md"),
    ],
)
def test_places_of_pages(path: str, target: str) -> None:
    assert site_path(Path(path)).as_posix() == target
