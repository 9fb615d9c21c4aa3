"""O1: forged cookies of every kind that ``test_o1_sessions`` does not have."""

import hashlib
import hmac
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from forge_jobs.ops.sessions import Sessions
from forge_jobs.web import Role
from forge_jobs.web.access import hashes
from forge_jobs.web.access.hashes import derive_key, hash_token
from tests.web.harness import token
from tests.web.test_o1_sessions import ADMIN, BOTH, COOKIE, VIEWER, WebProcess, web_process


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "_COST", (1 << 8, 8, 1))


def rows(path: Path) -> list[tuple[str, str, bytes]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT namespace, name, value FROM forge_settings").fetchall()
    finally:
        connection.close()


async def test_o1_a_reader_of_the_database_forges_no_cookie(tmp_path: Path) -> None:
    """Neither the stored names, nor the marks, nor the key itself is a session token."""
    path = tmp_path / "jobs.db"
    async with web_process(f"sqlite:///{path}", BOTH) as here:
        good = await here.log_in(ADMIN)
        key = await Sessions(here.forge.aready).key()
        candidates = [key.hex(), *(name for _, name, _ in rows(path))]
        candidates += [value.hex() for _, _, value in rows(path)]
        candidates += [hmac.new(key, good.encode(), hashlib.sha256).hexdigest()]
        for text in candidates:
            for role in Role:
                for cookie in (text, f"{role.word}.{text}", f"{role.word}.{text[:43]}"):
                    assert await here.role(f"{COOKIE}={cookie}") is None
        assert await here.role(f"{COOKIE}={good}") == "admin"


@pytest.mark.parametrize(
    "key_of",
    [
        lambda: b"\0" * 32,
        lambda: derive_key(VIEWER, b"forge-jobs session key"),
        lambda: hashlib.sha256(ADMIN.encode()).digest(),
    ],
    ids=["zeros", "derived from the viewer's password", "hash of the admin's password"],
)
async def test_o1_a_cookie_signed_with_another_key_is_refused(
    tmp_path: Path, key_of: Callable[[], bytes]
) -> None:
    async with web_process(f"sqlite:///{tmp_path}/jobs.db", BOTH) as here:
        await here.log_in(VIEWER)
        for role in Role:
            mark = hmac.new(key_of(), role.word.encode(), hashlib.sha256).hexdigest()
            for cookie in (f"{role.word}.{mark}", f"{role.word}.{mark[:43]}", mark):
                assert await here.role(f"{COOKIE}={cookie}") is None


async def test_o1_a_cookie_of_another_instance_of_the_same_kind_is_refused(tmp_path: Path) -> None:
    """Two installations with the same passwords, and one whose database was made anew."""
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two")]
    async with web_process(urls[0], BOTH) as one, web_process(urls[1], BOTH) as two:
        cookie = await one.log_in(ADMIN)
        await two.log_in(ADMIN)
        assert await two.role(f"{COOKIE}={cookie}") is None
        assert await one.role(f"{COOKIE}={cookie}") == "admin"
    for path in tmp_path.glob("one.db*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    async with web_process(urls[0], BOTH) as anew:
        assert await anew.role(f"{COOKIE}={cookie}") is None


async def test_o1_one_credential_is_not_accepted_as_another(shared_url: str) -> None:
    """A session token is no bearer token, a bearer token no session, a device cookie neither."""
    here = WebProcess(shared_url, BOTH)
    async with here.client() as client:
        response = await client.post("/login", data={"password": ADMIN})
        session, device = response.cookies[COOKIE], response.cookies["forge_device"]
    for bearer in (session, device, session.partition(".")[2], hash_token(token(Role.ADMIN))):
        async with here.client(authorization=f"Bearer {bearer}") as client:
            assert (await client.get("/api/jobs")).status_code == 401
    for cookie in (device, token(Role.ADMIN), hash_token(token(Role.ADMIN))):
        assert await here.role(f"{COOKIE}={cookie}") is None
    assert await here.role(f"forge_device={device}") is None
    assert await here.role(f"forge_device={session}") is None
    assert await here.role(f"{COOKIE}={session}") == "admin"
    await here.app.aclose()
    await here.forge.aclose()


async def test_o1_a_replay_after_a_logout_in_the_same_request_chain_is_refused(
    shared_url: str,
) -> None:
    """Logging out with the cookie twice, and with several cookies at once, ends all of them."""
    async with web_process(shared_url, BOTH) as here:
        first, second = await here.log_in(ADMIN), await here.log_in(VIEWER)
        async with here.client(cookie=f"{COOKIE}={first}; {COOKIE}={second}") as client:
            for _ in range(2):
                assert (await client.post("/logout")).status_code == 303
        assert await here.role(f"{COOKIE}={first}") is None
        assert await here.role(f"{COOKIE}={second}") is None
    async with web_process(shared_url, BOTH) as later:
        assert await later.role(f"{COOKIE}={first}") is None
