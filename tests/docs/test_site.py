"""The site as `make docs` builds it, opened from the disk in a browser: complete, accessible, found
by its own search, and nothing comes from a network."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from scripts.docs_site import navigation
from scripts.docs_site.staging import site_path
from tests.browser_start import chromium

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
PICTURES = ROOT / "artifacts" / "docs"
# The types of pages: start, guide with tables, guide with drawings, reference, listing, search.
PAGES = {
    "start": "index.html",
    "guide": "steps.html",
    "drawings": "protocol.html",
    "reference": "reference/configuration.html",
    "search": "search.html?q=timeout",
}
WIDTHS = (1440, 390)
# axe takes seconds for a large page: each theme and each width once.
CHECKED = (("light", 1440), ("dark", 390))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once for the tests of this file. Warnings of Sphinx fail the build."""
    folder = tmp_path_factory.mktemp("site") / "docs"
    done = subprocess.run(
        [sys.executable, "-m", "scripts.docs_site", "--output", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A window that fails the test for errors in its console and for requests to a network."""
    window = browser.new_context(color_scheme=getattr(request, "param", "light"))
    opened = window.new_page()
    troubles: list[str] = []
    opened.on("console", lambda m: troubles.append(m.text) if m.type == "error" else None)
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    opened.on("request", lambda one: None if _is_local(one.url) else troubles.append(one.url))
    yield opened
    window.close()
    assert troubles == []


def _is_local(address: str) -> bool:
    return address.startswith(("file:", "data:", "blob:"))


def test_every_page_of_the_repository_is_in_the_site(site: Path) -> None:
    for path in navigation.pages(ROOT):
        assert (site / site_path(path).with_suffix(".html")).is_file(), path
    text = (site / "postgres.html").read_text(encoding="utf-8")
    sidebar = text.split('class="sidebar-tree"')[1].split("</aside>")[0]
    for section, entries in navigation.sections(ROOT).items():
        assert f'<span class="caption-text">{section}</span>' in sidebar
        for entry in entries:
            assert f">{entry.label}</a>" in sidebar


def test_every_link_of_the_site_leads_to_a_page_and_an_element(site: Path) -> None:
    ids: dict[Path, set[str]] = {}
    broken: list[str] = []
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for address in set(re.findall(r'(?:href|src)="([^"]+)"', text)):
            parts = urlsplit(address.replace("&amp;", "&"))
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                broken.append(f"{path.relative_to(site)}: {address}")
            elif parts.fragment and target.suffix == ".html":
                if target not in ids:
                    ids[target] = set(re.findall(r'\bid="([^"]+)"', target.read_text("utf-8")))
                if unquote(parts.fragment) not in ids[target]:
                    broken.append(f"{path.relative_to(site)}: {address}")
    assert broken == []


def test_the_list_for_language_models_leads_to_pages(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)", text)
    assert len(targets) > 60
    assert [one for one in targets if not (site / one).is_file()] == []


def test_no_page_loads_anything_from_a_network(site: Path) -> None:
    loads = r"""(?:<(?:script|img|link|iframe)\b[^>]*?(?:src|href)="|@import\s+['"(]*|url\(['"]?)"""
    remote = re.compile(rf"{loads}(?:https?:)?//")
    found = [
        path.relative_to(site).as_posix()
        for path in site.rglob("*")
        if path.suffix in (".html", ".css", ".svg") and remote.search(path.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_pages_pass_axe_and_have_their_pictures(
    site: Path, page: Page, request: pytest.FixtureRequest
) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    colours = request.node.callspec.params["page"]
    found: list[str] = []
    for name, address in PAGES.items():
        page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        page.goto(f"file://{site}/{address}")
        if name == "search":
            expect(page.locator("ul.search li").first).to_be_visible()
        page.add_script_tag(path=AXE)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{address} is {wide} wide at {width}"
            page.screenshot(path=PICTURES / f"{name}-{colours}-{width}.png")
            if (colours, width) in CHECKED:
                found += [f"{name} at {width}: {one}" for one in violations(page)]
    assert found == [], "\n".join(found)


def violations(page: Page) -> list[str]:
    """The violations that axe reports."""
    options = {"resultTypes": ["violations"], "preload": False}
    answer: Any = page.evaluate("options => axe.run(options)", options)
    return [
        f"{one['id']}: {node['html'][:120]} {node['failureSummary'][:160]}"
        for one in answer["violations"]
        for node in one["nodes"]
    ]


def test_the_search_finds_pages_without_a_network(site: Path, page: Page) -> None:
    page.goto(f"file://{site}/index.html")
    page.get_by_placeholder("Search").fill("bad_url")
    page.keyboard.press("Enter")
    first = page.locator("ul.search li a").first
    expect(first).to_contain_text("bad_url")
    first.click()
    expect(page).to_have_url(re.compile(r"reference/errors\.html.*#bad-url$"))
    expect(page.get_by_role("heading", name="bad_url")).to_be_in_viewport()


def test_guides_come_before_records_of_decisions(site: Path, page: Page) -> None:
    page.goto(f"file://{site}/search.html?q=retry")
    links = page.locator("ul.search li a")
    expect(page.locator("p.search-summary")).to_contain_text("found")
    targets = [one.get_attribute("href") or "" for one in links.all()]
    late = [re.match(r"(decisions|files|project)/", target) is not None for target in targets]
    assert any(late)
    assert late == sorted(late)


def test_light_and_dark_can_be_chosen(site: Path, page: Page) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"file://{site}/index.html")
    colours: set[str] = set()
    for _ in range(3):
        page.locator(".theme-toggle:visible").first.click()
        colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2
