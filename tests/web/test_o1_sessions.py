"""O1: sessions cannot be forged, and a logout holds in every process.

Refused are cookies forged from passwords or their hashes, cookies of another store or of a role
that is not configured, and cookies that were logged out in any process, also after a restart. Each
test runs on stores that several processes can share.
"""

import asyncio
import hashlib
import hmac
import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest

from forge_jobs import Forge
from forge_jobs.kit.entropy import SYSTEM_ENTROPY
from forge_jobs.web import Credentials, Role, mission_control
from forge_jobs.web.access import hashes
from forge_jobs.web.access.hashes import derive_key, hash_password
from tests.web.harness import REMOTE_CLIENT, serve_on_socket
from tests.web.test_logins import live_lines, remaining_lines

COOKIE = "forge_session"
ADMIN, VIEWER = "the admin's own password", "known to every viewer"
BOTH = {Role.ADMIN: ADMIN, Role.VIEWER: VIEWER}
HOUR_S = 3600


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make scrypt cheap: its cost is not the subject of these tests."""
    monkeypatch.setattr(hashes, "_COST", (1 << 8, 8, 1))


class WebProcess:
    """Stands for one process: its own Forge and app over a store."""

    def __init__(self, url: str, passwords: dict[Role, str]) -> None:
        self.forge = Forge(url)
        self.app = mission_control(self.forge, auth=Credentials(passwords))

    def client(self, **headers: str | bytes) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app, client=REMOTE_CLIENT)
        return httpx.AsyncClient(
            transport=transport, base_url="http://jobs.example", headers=headers
        )

    async def log_in(self, password: str) -> str:
        async with self.client() as client:
            response = await client.post("/login", data={"password": password})
            assert response.status_code == 303
            return client.cookies[COOKIE]

    async def log_out(self, cookie: str) -> None:
        async with self.client(cookie=f"{COOKIE}={cookie}") as client:
            assert (await client.post("/logout")).status_code == 303

    async def role(self, header: str | bytes) -> str | None:
        """The role of a Cookie header; None if every route refuses it."""
        async with self.client(cookie=header) as client:
            read = await client.get("/api/jobs")
            page = await client.get("/queues")
            write = await client.post("/api/queue/cleanup")
            if read.status_code == 401:
                assert write.status_code == 401
                assert (page.status_code, page.headers["location"]) == (303, "/login?back=/queues")
                assert (await client.get("/live")).status_code == 303
                return None
            assert (read.status_code, page.status_code) == (200, 200)
            return "viewer" if write.status_code == 403 else "admin"


@asynccontextmanager
async def web_process(url: str, passwords: dict[Role, str]) -> AsyncGenerator[WebProcess]:
    created = WebProcess(url, passwords)
    try:
        yield created
    finally:
        await created.app.aclose()
        await created.forge.aclose()


def old_cookie(key: bytes, role: Role, body: str | None = None) -> str:
    """A cookie of the former format: role and expiry, signed with that key."""
    ticket = ["admin", int(role), (int(time.time()) + HOUR_S) * 1_000_000]
    body = json.dumps(ticket, separators=(",", ":")).encode().hex() if body is None else body
    return f"{body}.{hmac.new(key, body.encode(), hashlib.sha256).hexdigest()}"


def old_signing_key(passwords: dict[Role, str]) -> bytes:
    """The signing key of the former format, derived from the configured passwords."""
    ordered = sorted(passwords.items(), reverse=True)
    text = "\n".join(f"{role.word}={password}" for role, password in ordered)
    return derive_key(text, b"forge-jobs session key")


async def test_o1_cookies_forged_from_passwords_and_hashes_are_refused(shared_url: str) -> None:
    hashed = hash_password(ADMIN, SYSTEM_ENTROPY)
    for known in ({Role.VIEWER: VIEWER}, {Role.ADMIN: hashed}, BOTH):
        async with web_process(shared_url, known) as here:
            keys = [old_signing_key(known), *(text.encode() for text in known.values())]
            for key in keys:
                for role in Role:
                    assert await here.role(f"{COOKIE}={old_cookie(key, role)}") is None


async def test_o1_a_role_is_the_one_that_was_logged_in(shared_url: str) -> None:
    async with web_process(shared_url, BOTH) as here:
        viewer, admin = await here.log_in(VIEWER), await here.log_in(ADMIN)
        assert await here.role(f"{COOKIE}={viewer}") == "viewer"
        assert await here.role(f"{COOKIE}={admin}") == "admin"
        assert viewer.replace("viewer", "admin") != viewer
        assert await here.role(f"{COOKIE}={viewer.replace('viewer', 'admin')}") is None
        assert await here.role(f"{COOKIE}={admin.replace('admin', 'operator')}") is None


async def test_o1_a_logout_holds_in_every_process_and_after_a_restart(shared_url: str) -> None:
    async with web_process(shared_url, BOTH) as first, web_process(shared_url, BOTH) as second:
        left, stays = await first.log_in(ADMIN), await first.log_in(ADMIN)
        assert await second.role(f"{COOKIE}={left}") == "admin"
        await second.log_out(left)
        assert await first.role(f"{COOKIE}={left}") is None
        assert await second.role(f"{COOKIE}={left}") is None
        assert await second.role(f"{COOKIE}={stays}") == "admin"
    async with web_process(shared_url, BOTH) as later:
        assert await later.role(f"{COOKIE}={left}") is None
        assert await later.role(f"{COOKIE}={stays}") == "admin"


async def test_o1_a_session_is_valid_while_its_role_has_the_same_password(shared_url: str) -> None:
    async with web_process(shared_url, BOTH) as before:
        admin, viewer = await before.log_in(ADMIN), await before.log_in(VIEWER)
    async with web_process(shared_url, {Role.VIEWER: VIEWER}) as without:
        assert await without.role(f"{COOKIE}={admin}") is None
        assert await without.role(f"{COOKIE}={viewer}") == "viewer"
    async with web_process(shared_url, {Role.ADMIN: ADMIN + "2", Role.VIEWER: VIEWER}) as changed:
        assert await changed.role(f"{COOKIE}={admin}") is None
        assert await changed.role(f"{COOKIE}={viewer}") == "viewer"
    async with web_process(shared_url, {Role.VIEWER: ADMIN}) as moved:
        assert await moved.role(f"{COOKIE}={admin}") is None


async def test_o1_a_session_of_another_store_is_refused(shared_url: str) -> None:
    async with web_process("memory://", BOTH) as elsewhere, web_process(shared_url, BOTH) as here:
        cookie = await elsewhere.log_in(ADMIN)
        await here.log_in(ADMIN)
        assert await elsewhere.role(f"{COOKIE}={cookie}") == "admin"
        assert await here.role(f"{COOKIE}={cookie}") is None


async def test_o1_damaged_cookies_are_refused_and_nothing_breaks(shared_url: str) -> None:
    async with web_process(shared_url, BOTH) as here:
        good = await here.log_in(ADMIN)
        key = old_signing_key(BOTH)
        bad: list[str | bytes] = [
            "", ".", "admin.", "admin", "x", good[:-1], good + "A", good.upper(), good + ".",
            good[:-1] + ("A" if good[-1] != "A" else "B"), f'"{good}"', f"admin.{'A' * 43}",
            "9" * 100_000, f"admin.{'9' * 100_000}", "admin.%00%0a", "..//..", "admin.✓".encode(),
            b"\xff\xfe\x00", f"{good}é".encode("latin-1"), f"admin.{'é' * 43}".encode(),
            old_cookie(key, Role.ADMIN, "not hex"), old_cookie(key, Role.ADMIN, "6e6f"),
            old_cookie(key, Role.ADMIN, ""), old_cookie(key, Role.ADMIN, b'["a",9,9e99]'.hex()),
        ]  # fmt: skip
        for text in bad:
            data = text.encode() if isinstance(text, str) else text
            assert await here.role(f"{COOKIE}=".encode() + data) is None, data[:80]
        assert await here.role(f"{COOKIE}={good}") == "admin"


async def test_o1_of_several_cookies_exactly_one_must_be_valid(shared_url: str) -> None:
    """A browser also sends cookies of other mounts on the same host. An invalid one does not lock
    the valid one out; two valid ones are ambiguous and refused."""
    async with web_process(shared_url, BOTH) as here:
        admin, viewer = await here.log_in(ADMIN), await here.log_in(VIEWER)
        planted = f"{COOKIE}=admin.{'A' * 43}"
        assert await here.role(f"{planted}; {COOKIE}={viewer}") == "viewer"
        assert await here.role(f"{COOKIE}={viewer}; {planted}; other=1") == "viewer"
        for several in (
            f"{COOKIE}={admin}; {COOKIE}={viewer}",
            f"{planted}; {COOKIE}=x; {COOKIE}=",
            "; ".join([f"{COOKIE}={admin}"] + [f"{COOKIE}={n}" for n in range(4)]),
        ):
            assert await here.role(several) is None, several


KEY_OF = """
import asyncio, hashlib, sys
from forge_jobs import Forge
from forge_jobs.ops.sessions import Sessions

async def main():
    forge = Forge(sys.argv[1])
    print(hashlib.sha256(await Sessions(forge.aready).key()).hexdigest())
    await forge.aclose()

asyncio.run(main())
"""


@pytest.mark.processes
def test_o1_processes_that_start_at_once_have_one_random_key(shared_url: str) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", KEY_OF, shared_url],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    done = [each.communicate(timeout=240) for each in started]
    assert [each.returncode for each in started] == [0] * 4, done
    assert len({out for out, _ in done}) == 1


async def test_o1_a_logout_in_another_process_ends_a_stream(shared_url: str) -> None:
    here, other = WebProcess(shared_url, BOTH), WebProcess(shared_url, BOTH)
    with serve_on_socket(here.app) as address:
        cookie = await other.log_in(ADMIN)
        headers = {"cookie": f"{COOKIE}={cookie}"}
        async with (
            httpx.AsyncClient(base_url=address, headers=headers, timeout=60) as client,
            live_lines(client, "/jobs?tag=none") as lines,
        ):
            await other.log_out(cookie)
            assert "event: over" in await remaining_lines(lines)
    await asyncio.gather(here.forge.aclose(), other.forge.aclose())
