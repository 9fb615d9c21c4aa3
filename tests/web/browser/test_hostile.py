"""Two hundred hostile strings in every text field: none is executed or becomes markup."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from forge_jobs import Context, Dead
from forge_jobs.core.job import NewJob
from forge_jobs.core.schedule import CronSpec
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.ops import queries
from forge_jobs.ops.actions import JobActions, Selection, Store
from forge_jobs.ops.rate_limits import RateLimitActions
from forge_jobs.ops.schedules import ScheduleActions
from tests.web.browser.site import Site
from tests.web.browser.window import PAGES, open_window

STRINGS = (Path(__file__).parent / "hostile.txt").read_text().splitlines()
PARTS = [STRINGS[at : at + 30] for at in range(0, len(STRINGS), 30)]
# Elements and attributes that would exist if a string became markup.
MADE = "#view [onerror], #view [onload], #view iframe, #view object, #view embed, #view script, \
#view base, #view meta, #view link, #view style, #view [hx-get], [sse-connect], #view [onmouseover]"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, list[str]]]:
    """A site whose text fields hold the hostile strings."""
    site = Site(tmp_path_factory.mktemp("attacked"))

    @site.forge.task(queue="mail", max_attempts=1)
    async def bear(texts: list[str], ctx: Context) -> None:
        for text in texts:
            ctx.log.info("%s", text)
        ctx.progress(0.5, texts[0])
        raise Dead("\n".join(texts))

    site.start()
    ids = site.enqueue(*map(borne, PARTS))
    site.wait_for(len(PARTS), JobStatus.DEAD, kind="bear")
    site.run_on_store(plant)
    site.enqueue(*map(each, STRINGS))
    yield site, ids
    site.stop()


def borne(texts: list[str]) -> NewJob:
    return NewJob(
        kind="bear", queue="mail", payload=json.dumps({"texts": texts}).encode(),
        tags=tuple(texts[:30]), dedupe_key=texts[0], lane=texts[1], max_attempts=1,
    )  # fmt: skip


def each(text: str) -> NewJob:
    """A job with one string in every free-text field."""
    plain = text.replace(",", " ")
    return NewJob(
        kind="bear", queue="mail", payload=json.dumps({text: text}).encode(), tags=(plain,),
        dedupe_key=f"{text} ", lane=text, limit_key=text, delay_s=3_600,
    )  # fmt: skip


async def plant(store: Store) -> None:
    """Put the strings into payload keys, scopes, schedules and the audit."""
    named = json.dumps({text: text for text in STRINGS}).encode()
    late = NewJob(kind="note", queue="mail", payload=named, tags=tuple(STRINGS[40:60]))
    await store.jobs.enqueue([late])
    limits = RateLimitActions(store, actor=STRINGS[0])
    for text in STRINGS[:200:8]:
        await limits.set_rate(text, "5/m")
    messages = CronSpec(name="planted", expression="0 3 * * *", kind="note", payload=named)
    await ScheduleActions(store, actor=STRINGS[1]).create(messages)
    for text in STRINGS[:20]:
        done = JobActions(store, actor=text)
        await done.cancel(Selection(ids=("0" * 26,)))


def test_there_are_two_hundred() -> None:
    assert len(STRINGS) >= 200


def test_nothing_executes_on_any_page(browser: Browser, attacked: tuple[Site, list[str]]) -> None:
    site, ids = attacked
    strange: list[str] = []

    def record_foreign(request: Request) -> None:
        if not request.url.startswith(site.address) or "pwned" in request.url.split("?")[0]:
            strange.append(request.url)

    with open_window(browser, site.address) as page:
        page.on("request", record_foreign)
        for address in (*PAGES, "/cron/planted", *(f"/jobs/{one}" for one in ids)):
            page.goto(address)
            check(page)
        page.goto("/dead?kind=bear")
        for one in ids[:2]:
            page.locator(f"#job-{one} a[data-drawer]").click()
            expect(page.locator("#drawer .card.bad")).to_be_visible()
            check(page)
            page.keyboard.press("Escape")
    assert strange == []


def test_what_is_typed_comes_back_as_text(
    browser: Browser, attacked: tuple[Site, list[str]]
) -> None:
    site, _ = attacked
    with open_window(browser, site.address) as page:
        page.goto("/limits")
        page.get_by_text("Set a limit").click()
        for text in STRINGS[:6]:
            page.get_by_label("Name").fill(text)
            page.get_by_label("Rate", exact=True).fill(text)
            page.locator("#set-limit").get_by_role("button", name="Set").click()
            expect(page.locator("#notices .notice").last).to_contain_text(text)
            check(page)
        page.keyboard.press("Control+k")
        for text in STRINGS[:6]:
            page.locator("#palette-text").fill(text)
            expect(page.locator("#palette-list")).to_contain_text(text)
            check(page)


# Like the drawer, for each job: fetch, parse, insert into the page.
_EACH = """async ([paths, made]) => {
    const found = [];
    for (const path of paths) {
        const html = await (await fetch(path)).text();
        const page = new DOMParser().parseFromString(html, 'text/html');
        const view = page.querySelector('#view');
        if (!view) { found.push(path + ' has no view'); continue; }
        const copy = document.importNode(view, true);
        document.querySelector('#drawer-body').replaceChildren(copy);
        window.htmx.process(copy);
        if (copy.querySelector(made)) found.push(path);
    }
    return found;
}"""
_TOLD = """texts => {
    const words = document.querySelector('#palette-text'), found = [];
    for (const text of texts) {
        document.dispatchEvent(new CustomEvent('forge:notice', {detail: {text, command: text}}));
        const notice = document.querySelector('#notices').lastElementChild;
        if (notice.children.length !== 1 || !notice.textContent.includes(text)) found.push(text);
        notice.remove();
        words.value = text;
        words.dispatchEvent(new Event('input', {bubbles: true}));
        const list = document.querySelector('#palette-list');
        if (list.querySelector('li > *')) found.push(text);
    }
    return found;
}"""


def test_every_string_in_every_field_stays_text(
    browser: Browser, attacked: tuple[Site, list[str]]
) -> None:
    site, _ = attacked
    late = Filter(kind="bear", statuses=(JobStatus.SCHEDULED,))
    page_of = site.run_on_store(lambda store: queries.jobs(store, late, limit=500))
    assert len(page_of.jobs) >= len(STRINGS) - 1
    jobs = [f"/jobs/{job.id}" for job in page_of.jobs]
    fields = ("kind", "tag", "key", "error", "payload", "queue")
    lists = ["/scheduled?" + urlencode(dict.fromkeys(fields, text)) for text in STRINGS]
    lists += ["/audit?" + urlencode({"actor": text, "subject": text}) for text in STRINGS[::4]]
    with open_window(browser, site.address) as page:
        page.goto("/scheduled?kind=bear")
        check(page)
        older = page.get_by_role("link", name="Next page")
        while older.count():
            page.goto(older.get_attribute("href") or "")
            check(page)
        page.wait_for_function("window.forge && window.htmx")
        bare = MADE.replace("#view ", "")
        assert page.evaluate(_EACH, [jobs + lists, bare]) == []
        assert page.evaluate(_TOLD, STRINGS) == []
        check(page)


def check(page: Page) -> None:
    assert page.evaluate("window.pwned") is None
    assert page.locator(MADE).count() == 0
    assert page.locator("#notices script, #notices img, #palette-list img").count() == 0
