"""Roles: every route, page and form for every role, and the access methods."""

from collections.abc import AsyncIterator

import httpx
import pytest

from forge_jobs import Forge
from forge_jobs.kit.entropy import SYSTEM_ENTROPY
from forge_jobs.testing.clock import MovableClock
from forge_jobs.web import Credentials, Role, mission_control
from forge_jobs.web.access.hashes import hash_password, verify_password
from forge_jobs.web.api.all import ROUTES
from forge_jobs.web.api.openapi import openapi_path
from forge_jobs.web.api.route import Route
from forge_jobs.web.guard import MAX_BODY
from forge_jobs.web.pages.all import FORMS, PAGES
from tests.web.harness import PASSWORD, REMOTE_CLIENT, WebHarness, credentials, web_harness

_VALUES = {
    "id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "job_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "name": "task:x", "worker": "nobody", "host_id": "nobody",
    "action": "retry", "scope": "x", "group": "jobs", "kind": "x",
}  # fmt: skip
_ROLES = (None, *Role)


def fill_path(path: str) -> str:
    for name, value in _VALUES.items():
        path = path.replace(f"{{{name}}}", value)
    assert "{" not in path
    return path


async def send(harness: WebHarness, role: Role | None, method: str, path: str) -> httpx.Response:
    async with harness.client(role) as client:
        body = {} if method in ("GET", "DELETE") else {"json": {}}
        return await client.request(method, fill_path(path), **body)


@pytest.fixture
async def harness() -> AsyncIterator[WebHarness]:
    harness = web_harness()
    yield harness
    await harness.forge.aclose()


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_a_route_is_for_its_role_and_those_above(harness: WebHarness, route: Route) -> None:
    for role in _ROLES:
        status = (await send(harness, role, route.method, openapi_path(route))).status_code
        if role is None:
            assert status == 401
        elif role < route.role:
            assert status == 403
        else:
            assert status not in (401, 403, 405)
            assert status < 500


async def test_a_page_is_for_its_role_and_those_above(harness: WebHarness) -> None:
    for page in PAGES:
        for role in _ROLES:
            status = (await send(harness, role, "GET", page.path)).status_code
            if role is None:
                assert status == 303, page.path
            else:
                assert (status == 403) == (role < page.role), page.path
                assert status < 500, page.path


async def test_a_form_is_for_its_role_and_those_above(harness: WebHarness) -> None:
    for form in FORMS:
        for role in _ROLES:
            status = (await send(harness, role, "POST", form.path)).status_code
            if role is None:
                assert status == 303, form.path
            else:
                assert (status == 403) == (role < form.role), form.path
                assert status < 500, form.path


async def test_sessions_have_the_roles_of_tokens() -> None:
    """The matrix again with sessions: what a role may do does not depend on how it logged in."""
    passwords = {role: f"the {role.word}'s password" for role in Role}
    harness = web_harness(auth=Credentials(passwords))
    for role in Role:
        async with harness.client(None) as client:
            logged_in = await client.post("/login", data={"password": passwords[role]})
            assert logged_in.status_code == 303
            for route in ROUTES:
                body = {} if route.method in ("GET", "DELETE") else {"json": {}}
                path = fill_path(openapi_path(route))
                status = (await client.request(route.method, path, **body)).status_code
                assert (status == 403) == (role < route.role), path
                assert status != 401, path
            for page in PAGES:
                status = (await client.get(fill_path(page.path))).status_code
                assert (status == 403) == (role < page.role), page.path
            for form in FORMS:
                status = (await client.post(fill_path(form.path))).status_code
                assert (status == 403) == (role < form.role), form.path
    await harness.app.aclose()
    await harness.forge.aclose()


async def test_another_method_gets_405_with_the_allowed_ones(harness: WebHarness) -> None:
    for route in ROUTES:
        known = {one.method for one in ROUTES if one.path == route.path}
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "TRACE"} - known:
            response = await send(harness, Role.ADMIN, method, openapi_path(route))
            assert response.status_code == 405, (method, route.path)
            assert set(response.headers["allow"].split(", ")) - {"HEAD"} == known


async def test_read_only_omits_every_route_that_writes() -> None:
    harness = web_harness(read_only=True)
    for route in ROUTES:
        status = (await send(harness, Role.ADMIN, route.method, openapi_path(route))).status_code
        assert (status in (404, 405)) or not route.writes, route.path
    for form in FORMS:
        assert (await send(harness, Role.ADMIN, "POST", form.path)).status_code in (404, 405)
    document = (await send(harness, Role.ADMIN, "GET", "/api/openapi.json")).json()
    assert "/api/jobs/list" in document["paths"]
    assert "/api/jobs/delete" not in document["paths"]
    await harness.forge.aclose()


async def test_deleting_in_bulk_needs_an_admin(harness: WebHarness) -> None:
    body = {"action": "delete", "filter": {"queues": ["mail"]}}
    async with harness.client(Role.OPERATOR) as operator, harness.client(Role.ADMIN) as admin:
        assert (await operator.post("/api/bulk", json=body)).status_code == 403
        assert (await admin.post("/api/bulk", json=body)).status_code == 200


async def test_a_password_opens_a_session_that_ends(harness: WebHarness) -> None:
    clock = MovableClock()
    forge = Forge("memory://", clock=clock)
    app = mission_control(forge, auth=credentials())
    transport = httpx.ASGITransport(app, client=REMOTE_CLIENT)
    async with httpx.AsyncClient(transport=transport, base_url="https://jobs.example") as client:
        wrong = await client.post("/login", data={"password": "guess"})
        assert (wrong.status_code, client.cookies.get("forge_session")) == (401, None)
        right = await client.post("/login", data={"password": PASSWORD, "back": "//evil.example"})
        assert (right.status_code, right.headers["location"]) == (303, "/")
        cookie = right.headers["set-cookie"].lower()
        assert all(word in cookie for word in ("httponly", "samesite=strict", "secure"))
        assert (await client.get("/api/jobs")).status_code == 200
        forged = client.cookies["forge_session"]
        swapped = forged[:-1] + ("0" if forged[-1] != "0" else "1")
        stranger = {"cookie": f"forge_session={swapped}"}
        async with httpx.AsyncClient(transport=transport, base_url="https://jobs.example") as other:
            assert (await other.get("/api/jobs", headers=stranger)).status_code == 401
        clock.advance(13 * 3600)
        assert (await client.get("/api/jobs")).status_code == 401
        assert (await client.get("/queues")).headers["location"] == "/login?back=/queues"
    await forge.aclose()


async def test_without_credentials_only_this_machine_is_accepted() -> None:
    forge = Forge("memory://")
    app = mission_control(forge)
    for client, host, status in (
        (("127.0.0.1", 5), "localhost:8787", 200),
        (("127.0.0.1", 5), "evil.example", 401),
        (REMOTE_CLIENT, "localhost:8787", 401),
    ):
        transport = httpx.ASGITransport(app, client=client)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as asker:
            assert (await asker.get("/api/jobs")).status_code == status
    await forge.aclose()


async def test_a_callable_identifies_requests() -> None:
    async def who(request: object) -> str | None:
        return request.headers.get("x-role")  # type: ignore[attr-defined]

    harness = web_harness(auth=who)
    async with harness.client(None) as client:
        for role, status in (("viewer", 403), ("admin", 200)):
            response = await client.post("/api/queue/cleanup", headers={"x-role": role})
            assert response.status_code == status
        assert (await client.get("/api/jobs")).status_code == 401
    await harness.forge.aclose()


async def test_other_sites_and_other_host_names_are_refused() -> None:
    harness = web_harness(hosts=("jobs.example",))
    token = {"cookie": "forge_session=x"}
    async with harness.client(None) as client:
        for headers in (
            {"origin": "https://evil.example"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ):
            response = await client.post("/api/jobs/retry", json={}, headers={**token, **headers})
            assert (response.status_code, response.json()["kind"]) == (403, "forbidden")
        named = await client.get("/api/jobs", headers={"host": "evil.example"})
        assert named.status_code == 421
        for probe in ("/healthz", "/readyz"):
            pod = await client.get(probe, headers={"host": "10.1.2.3:8765"})
            assert (pod.status_code, pod.text) == (200, "ok\n")
        large = await client.post("/api/jobs/list", content=b" " * (MAX_BODY + 1))
        assert large.status_code == 413
    await harness.forge.aclose()


async def test_every_response_has_the_security_headers(harness: WebHarness) -> None:
    async with harness.client(Role.VIEWER) as client:
        for path in ("/", "/api/jobs", "/api/nothing", "/login", "/healthz", "/static/forge.css"):
            headers = (await client.get(path)).headers
            assert "script-src 'self'" in headers["content-security-policy"], path
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"


def test_passwords_are_stored_as_salted_hashes() -> None:
    first, second = (hash_password(PASSWORD, SYSTEM_ENTROPY) for _ in range(2))
    assert first != second
    assert PASSWORD not in first
    assert verify_password(PASSWORD, first)
    assert not verify_password(PASSWORD + "x", first)
    assert Credentials({Role.ADMIN: first}).login
