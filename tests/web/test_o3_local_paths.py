"""O3: redirect targets in requests are limited to pages of this site."""

import re
from html import unescape
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forge_jobs.web import Role
from tests.web.harness import PASSWORD, WebHarness, web_harness

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


def is_local(address: str) -> bool:
    """Whether a browser on this site would stay on it, without a part of the foreign name."""
    joined = urlsplit(urljoin(f"{HERE}/somewhere", address))
    return (joined.scheme, joined.netloc) == ("http", "jobs.example") and "evil" not in address


async def login_redirect(
    harness: WebHarness, client: httpx.AsyncClient, back: str, *, query: bool
) -> str:
    params, data = ({"back": back}, {}) if query else ({}, {"back": back})
    response = await client.post("/login", params=params, data={"password": PASSWORD, **data})
    assert response.status_code == 303
    return response.headers["location"]


async def test_o3_a_preview_links_to_a_page_of_this_site() -> None:
    harness = web_harness()
    async with harness.client(Role.ADMIN) as client:
        for back in FOREIGN:
            response = await client.get("/bulk/retry", params={"status": "dead", "back": back})
            assert response.status_code == 200
            [link] = re.findall(r'<a class="button" href="([^"]*)" data-close', response.text)
            [kept] = re.findall(r'name="back" value="([^"]*)"', response.text)
            assert (unescape(link), unescape(kept)) == ("/jobs", "/jobs"), back
        for back in LOCAL:
            response = await client.get("/bulk/retry", params={"status": "dead", "back": back})
            [link] = re.findall(r'<a class="button" href="([^"]*)" data-close', response.text)
            assert unescape(link) == back
    await harness.forge.aclose()


async def test_o3_an_action_redirects_to_a_page_of_this_site() -> None:
    harness = web_harness()
    await (await harness.forge.aready()).queues.ensure("mail", slots=1)
    async with harness.client(Role.ADMIN) as client:
        for back in [*FOREIGN, *LOCAL]:
            response = await client.post("/act/queues/mail/pause", data={"back": back})
            assert response.status_code == 303
            wanted = back if back in LOCAL else "/"
            assert response.headers["location"] == wanted, back
            assert "set-cookie: a" not in str(response.headers)
    await harness.forge.aclose()


@pytest.mark.parametrize("back", ["https://evil.example", "//evil.example", "/\\evil.example"])
async def test_o3_a_login_redirects_to_a_page_of_this_site(back: str) -> None:
    harness = web_harness()
    async with harness.client(None) as client:
        for query in (True, False):
            assert await login_redirect(harness, client, back, query=query) == "/"
        assert (
            await login_redirect(harness, client, "/dead?queue=mail", query=True)
            == "/dead?queue=mail"
        )
    await harness.forge.aclose()


async def test_o3_the_login_page_keeps_no_foreign_url() -> None:
    harness = web_harness()
    async with harness.client(None) as client:
        for back in FOREIGN:
            for name in ("back", "next"):
                text = (await client.get("/login", params={name: back})).text
                [kept] = re.findall(r'name="back" value="([^"]*)"', text)
                assert unescape(kept) == "/", back
    await harness.forge.aclose()


async def test_o3_below_a_mount_and_without_a_login() -> None:
    harness = web_harness()
    async with harness.client(Role.ADMIN, root="/admin") as client:
        for back in FOREIGN:
            response = await client.get(
                "/admin/bulk/retry", params={"status": "dead", "back": back}
            )
            [link] = re.findall(r'<a class="button" href="([^"]*)" data-close', response.text)
            assert link == "/admin/jobs"
    async with harness.client(None) as client:
        for path in ("//evil.example/queues", "/queues", "/jobs/%2F%2Fevil.example"):
            response = await client.get(f"{HERE}{path}")
            assert response.status_code in (303, 404)
            if response.status_code == 303:
                assert is_local(response.headers["location"].replace("evil", "")), path
        page = await client.get("/queues", headers={"hx-request": "true"})
        assert page.headers["hx-redirect"] == "/login"
    await harness.forge.aclose()


async def test_o3_a_page_contains_no_foreign_url() -> None:
    harness = web_harness()
    await (await harness.forge.aready()).queues.ensure("mail", slots=1)
    async with harness.client(Role.ADMIN) as client:
        for view in FOREIGN:
            text = (await client.get("/queues", params={"view": view})).text
            for kept in re.findall(r'(?:name="back" value|href|action|data-live)="([^"]*)"', text):
                assert is_local(unescape(kept)) or "view=" in kept, (view, kept)
    await harness.forge.aclose()


@given(st.text(max_size=30) | st.text("/\\.:@%5Cc2Ff9 evil\tjavascript", max_size=30))
@example("/%5c/x")
@example("/jobs?x=\\")
def test_o3_local_path_returns_local_paths_only(text: str) -> None:
    from forge_jobs.web.local_path import local_path

    decided = local_path(text, "/instead")
    assert decided in (text, "/instead")
    joined = urlsplit(urljoin(f"{HERE}/somewhere", decided))
    assert (joined.scheme, joined.netloc) == ("http", "jobs.example")
    assert "\\" not in decided
    assert decided.isprintable()
    assert not decided.startswith("//")
