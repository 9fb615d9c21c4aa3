"""O3: what a request says about where to go next leads to a page of this site or to none."""

import re
from html import unescape
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forge_jobs.web import Role
from tests.web.panel import PASSWORD, Panel, panel

HERE = "http://jobs.example"
FOREIGN = [
    "https://evil.example", "https:evil.example", "HTTPS://evil.example/jobs", "//evil.example",
    "///evil.example", "/\\evil.example", "\\\\evil.example", "\\/evil.example", "/jobs\\..\\..",
    "javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\tscript:alert(1)", "data:text/html,x",
    "vbscript:x", " https://evil.example", "\thttps://evil.example", "/\t/evil.example",
    "/\n/evil.example", "\n//evil.example", "/\r\nset-cookie: a=b", "\x00//evil.example",
    "/%09/evil.example", "/%5Cevil.example", "/%2Fevil.example", "/%252Fevil.example",
    "/%0d%0aset-cookie:a=b", "/.//evil.example", "/..//evil.example", "/%2e%2e//evil.example",
    "/jobs//evil.example", "%2F%2Fevil.example", "@evil.example", ".evil.example", "jobs", "?x", "",
    "http://jobs.example@evil.example/", "／／evil.example", "/\u2028/evil.example",
]  # fmt: skip
LOCAL = ["/", "/jobs", "/jobs?status=dead&error=http%3A%2F%2Fx", "/cron/a.b:c-d", "/jobs?tag=a//b"]


def leads_here(address: str) -> bool:
    """Whether a browser that is on this site stays on it; no fragment of a foreign name is left."""
    joined = urlsplit(urljoin(f"{HERE}/somewhere", address))
    return (joined.scheme, joined.netloc) == ("http", "jobs.example") and "evil" not in address


async def entered(made: Panel, client: httpx.AsyncClient, back: str, *, query: bool) -> str:
    params, data = ({"back": back}, {}) if query else ({}, {"back": back})
    answer = await client.post("/login", params=params, data={"password": PASSWORD, **data})
    assert answer.status_code == 303
    return answer.headers["location"]


async def test_o3_a_preview_links_to_a_page_of_this_site() -> None:
    made = panel()
    async with made.client(Role.ADMIN) as client:
        for back in FOREIGN:
            answer = await client.get("/bulk/retry", params={"status": "dead", "back": back})
            assert answer.status_code == 200
            [link] = re.findall(r'<a class="button" href="([^"]*)" data-close', answer.text)
            [kept] = re.findall(r'name="back" value="([^"]*)"', answer.text)
            assert (unescape(link), unescape(kept)) == ("/jobs", "/jobs"), back
        for back in LOCAL:
            answer = await client.get("/bulk/retry", params={"status": "dead", "back": back})
            [link] = re.findall(r'<a class="button" href="([^"]*)" data-close', answer.text)
            assert unescape(link) == back
    await made.forge.aclose()


async def test_o3_an_action_leads_back_to_a_page_of_this_site() -> None:
    made = panel()
    await (await made.forge.aready()).queues.ensure("mail", slots=1)
    async with made.client(Role.ADMIN) as client:
        for back in [*FOREIGN, *LOCAL]:
            answer = await client.post("/act/queues/mail/pause", data={"back": back})
            assert answer.status_code == 303
            wanted = back if back in LOCAL else "/"
            assert answer.headers["location"] == wanted, back
            assert "set-cookie: a" not in str(answer.headers)
    await made.forge.aclose()


@pytest.mark.parametrize("back", ["https://evil.example", "//evil.example", "/\\evil.example"])
async def test_o3_a_log_in_leads_to_a_page_of_this_site(back: str) -> None:
    made = panel()
    async with made.client(None) as client:
        for query in (True, False):
            assert await entered(made, client, back, query=query) == "/"
        assert await entered(made, client, "/dead?queue=mail", query=True) == "/dead?queue=mail"
    await made.forge.aclose()


async def test_o3_the_log_in_page_keeps_no_foreign_address() -> None:
    made = panel()
    async with made.client(None) as client:
        for back in FOREIGN:
            for name in ("back", "next"):
                text = (await client.get("/login", params={name: back})).text
                [kept] = re.findall(r'name="back" value="([^"]*)"', text)
                assert unescape(kept) == "/", back
    await made.forge.aclose()


async def test_o3_below_a_mount_and_for_those_turned_away() -> None:
    made = panel()
    async with made.client(Role.ADMIN, root="/admin") as client:
        for back in FOREIGN:
            answer = await client.get("/admin/bulk/retry", params={"status": "dead", "back": back})
            [link] = re.findall(r'<a class="button" href="([^"]*)" data-close', answer.text)
            assert link == "/admin/jobs"
    async with made.client(None) as client:
        for path in ("//evil.example/queues", "/queues", "/jobs/%2F%2Fevil.example"):
            answer = await client.get(f"{HERE}{path}")
            assert answer.status_code in (303, 404)
            if answer.status_code == 303:
                assert leads_here(answer.headers["location"].replace("evil", "")), path
        page = await client.get("/queues", headers={"hx-request": "true"})
        assert page.headers["hx-redirect"] == "/login"
    await made.forge.aclose()


async def test_o3_a_page_names_no_foreign_place_as_its_own() -> None:
    made = panel()
    await (await made.forge.aready()).queues.ensure("mail", slots=1)
    async with made.client(Role.ADMIN) as client:
        for view in FOREIGN:
            text = (await client.get("/queues", params={"view": view})).text
            for kept in re.findall(r'(?:name="back" value|href|action|data-live)="([^"]*)"', text):
                assert leads_here(unescape(kept)) or "view=" in kept, (view, kept)
    await made.forge.aclose()


@given(st.text(max_size=30) | st.text("/\\.:@%5Cc2Ff9 evil\tjavascript", max_size=30))
@example("/%5c/x")
@example("/jobs?x=\\")
def test_o3_one_function_decides(text: str) -> None:
    from forge_jobs.web.local_path import local_path

    decided = local_path(text, "/instead")
    assert decided in (text, "/instead")
    joined = urlsplit(urljoin(f"{HERE}/somewhere", decided))
    assert (joined.scheme, joined.netloc) == ("http", "jobs.example")
    assert "\\" not in decided
    assert decided.isprintable()
    assert not decided.startswith("//")
