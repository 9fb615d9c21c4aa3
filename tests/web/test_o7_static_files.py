"""O7: static files have hashed addresses, long caching and gzip; slow requests are cut off."""

import asyncio
import gzip
import re
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from forge_jobs import Forge
from forge_jobs.web import Role, guard, http_protocol, page_files, standalone
from forge_jobs.web.static_files import StaticFiles
from tests.web.harness import web_harness

LINKS = re.compile(r'(?:src|href)="([^"]*/static/[^"]+)"')


@pytest.mark.parametrize("root", ["", "/forge"])
async def test_o7_a_page_links_to_files_that_are_cached_for_a_year(root: str) -> None:
    harness = web_harness()
    async with harness.client(Role.VIEWER, root=root) as client:
        links = set(LINKS.findall((await client.get(f"{root}/queues")).text))
        links |= set(LINKS.findall((await client.get(f"{root}/login")).text))
        assert len(links) >= 9
        sent = 0
        for link in links:
            assert link.startswith(f"{root}/static/")
            file = await client.get(link, headers={"accept-encoding": "gzip"})
            assert file.status_code == 200, link
            assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
            sent += int(file.headers["content-length"])
            again = await client.get(link, headers={"if-none-match": file.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["cache-control"] == "public, max-age=31536000, immutable"
            plain = re.sub(r"\.[0-9a-f]{16}\.", ".", link)
            name = plain.removeprefix(f"{root}/static/")
            assert without_hashes(file.content) == (page_files.STATIC / name).read_bytes()
            unhashed = await client.get(plain)
            assert unhashed.headers["cache-control"] == "no-cache"
            assert "content-security-policy" in unhashed.headers
        assert sent < 80_000
    await harness.forge.aclose()


def without_hashes(content: bytes) -> bytes:
    """A style sheet leads to the hashed names of other files."""
    return re.sub(rb"\.[0-9a-f]{16}\.", b".", content)


async def test_o7_gzip_only_for_clients_that_accept_it() -> None:
    harness = web_harness()
    raw = (page_files.STATIC / "forge.css").read_bytes()
    async with harness.client(None) as client:
        for accepted, zipped in (
            ("gzip", True), ("br, gzip;q=0.5", True), ("identity", False), ("gzip;q=0", False),
            ("", False),
        ):  # fmt: skip
            request = client.build_request(
                "GET", "/static/forge.css", headers={"accept-encoding": accepted}
            )
            response = await client.send(request, stream=True)
            body = b"".join([part async for part in response.aiter_raw()])
            assert ("content-encoding" in response.headers) is zipped
            assert response.headers["vary"] == "accept-encoding"
            assert without_hashes(gzip.decompress(body) if zipped else body) == raw
        head = await client.head("/static/forge.css")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"].startswith("text/css")
        assert (await client.post("/static/forge.css")).status_code == 405
    await harness.forge.aclose()


async def test_o7_no_name_leads_out_of_the_folder_and_old_hashes_still_work() -> None:
    harness = web_harness()
    async with harness.client(None) as client:
        for name in ("../app.py", "%2e%2e/app.py", "..%2fapp.py", "/etc/passwd", "", "vendor",
                     "vendor/../../app.py", "forge.css/", "%00", "nothing.js"):  # fmt: skip
            assert (await client.get(f"/static/{name}")).status_code == 404, name
        other = await client.get("/static/forge.0123456789abcdef.css")
        assert (other.status_code, other.headers["cache-control"]) == (200, "no-cache")
    await harness.forge.aclose()


def test_o7_a_style_sheet_names_what_is_installed_by_its_hash(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(
        '@font-face { src: url("a.woff2") format("woff2"); } b { c: d }'
    )
    without = StaticFiles(tmp_path).address("/static/a.css")
    (tmp_path / "a.woff2").write_bytes(b"letters")
    files = StaticFiles(tmp_path)
    assert files.address("/static/a.css") != without
    content = files._find("a.css")
    assert content is not None
    name = files.address("/static/a.woff2").removeprefix("/static/").encode()
    assert b'url("' + name + b'") format("woff2"); } b { c: d }' in content.content


def test_o7_a_changed_file_has_another_address(tmp_path: Path) -> None:
    path = tmp_path / "a.js"
    path.write_text("one")
    files = StaticFiles(tmp_path)
    before = files.address("/static/a.js")
    path.write_text("another")
    assert files.address("/static/a.js") != before
    assert files.address("/static/missing.js") == "/static/missing.js"


# --------------------------------------------------------------------------- slow requests


@asynccontextmanager
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[int]:
    """Mission Control as ``forge web`` serves it, with short limits; yields its port."""
    monkeypatch.setattr(http_protocol, "HEAD_S", 1.0)
    monkeypatch.setattr(guard, "BODY_S", 1.0)
    forge = Forge("memory://")
    listener = standalone.listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    async with standalone.serve(forge, listener):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except ConnectionError:
                await asyncio.sleep(0.02)
        writer.close()
        yield port
    await forge.aclose()


def drip(port: int, first: bytes, byte: bytes, for_s: float) -> tuple[bytes, float]:
    """Send ``first``, then one byte every 0.1 s; what came back, and when the server closed."""
    began = time.monotonic()
    received = b""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(first)
        connection.settimeout(0.1)
        while time.monotonic() - began < for_s:
            try:
                part = connection.recv(65_536)
                if not part:
                    return received, time.monotonic() - began
                received += part
            except TimeoutError:
                pass
            except ConnectionError:
                return received, time.monotonic() - began
            try:
                if byte:
                    connection.sendall(byte)
            except ConnectionError:
                return received, time.monotonic() - began
    return received, float("inf")


@pytest.mark.parametrize(
    ("first", "byte"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n", b""),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"x"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nX: ", b"x"),
    ],
    ids=["nothing", "half a head", "a head byte by byte", "the second head byte by byte"],
)
async def test_o7_a_request_whose_head_does_not_end_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, first: bytes, byte: bytes
) -> None:
    async with served(monkeypatch) as port:
        received, ended_s = await asyncio.to_thread(drip, port, first, byte, 15.0)
    assert ended_s < 15
    assert received == b"" or received.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("path", ["/api/jobs/list", "/login", "/act/queues/mail/pause", "/nothing"])
async def test_o7_a_body_that_does_not_end_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: 5000\r\n\r\n{"
    )
    async with served(monkeypatch) as port:
        received, ended_s = await asyncio.to_thread(drip, port, head.encode(), b" ", 15.0)
    assert ended_s < 15
    if path == "/api/jobs/list":
        assert received.startswith(b"HTTP/1.1 408")
        assert b'"kind":"timeout"' in received


async def test_o7_a_client_that_leaves_inside_its_body_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    head = b"POST /api/jobs/list HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n{"
    async with served(monkeypatch) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        await writer.drain()
        await asyncio.sleep(0.2)
        writer.close()
        await asyncio.sleep(0.3)
    assert "Traceback" not in capsys.readouterr().err


async def test_o7_streams_and_slow_but_steady_clients_are_not_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served(monkeypatch) as port:
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, timeout=20) as client:
            async with client.stream("GET", "/live?view=/queues") as stream:
                async with asyncio.timeout(20):
                    seen = ""
                    async for line in stream.aiter_lines():
                        seen += line
                        if "event: alive" in line:
                            break
            assert "event: view" in seen
            for _ in range(3):
                assert (await client.get("/healthz")).status_code == 200
                await asyncio.sleep(1.2)
