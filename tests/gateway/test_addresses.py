"""Which addresses the http handler calls: spellings, rebinding, redirects to metadata."""

import asyncio
import ipaddress
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from forge_jobs import SYSTEM_CLOCK, Dead, Failed
from telegram_gateway.addresses import ForbiddenAddress, checked_endpoint, is_allowed
from telegram_gateway.config import Bot, HandlerName, HttpTarget
from telegram_gateway.handlers.http import HttpHandler
from telegram_gateway.update import read_update
from tests.gateway.conftest import SECRET, TOKEN, update
from tests.gateway.fake_api import serve_app

HOSTS = [
    "127.0.0.1", "127.1", "127.0.1", "127.255.255.254", "0177.0.0.1", "0x7f.0.0.1", "0x7f.1",
    "0x7f000001", "2130706433", "017700000001", "0X7F000001", "127.0.0.1.", "0", "0.0.0.0", "0.0",
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]",
    "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b::169.254.169.254]", "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::]", "[fe80::1]", "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]", "[::ffff:0:0]",
    "10.0.0.1", "10.1", "167772161", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.1",
    "3232235521", "0xc0a80001", "100.64.0.1", "100.100.100.200", "169.254.169.254", "2852039166",
    "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "192.0.0.192", "168.63.129.16",
    "198.18.0.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "①②⑦.⓪.⓪.①", "127。0。0。1", "１２７.0.0.1", "localhost", "LOCALHOST.", "metadata.internal",
    "mixed.example", "mapped.example", "[fe80::1%25eth0]", "user@127.0.0.1",
    "good.example@10.0.0.1",
]  # fmt: skip
NAMES = {
    "localhost": ["127.0.0.1"],
    "metadata.internal": ["169.254.169.254"],
    "mixed.example": ["93.184.216.34", "10.0.0.7"],
    "mapped.example": ["::ffff:10.0.0.7"],
    "good.example": ["93.184.216.34"],
}


async def names(host: str, port: int) -> Sequence[str]:
    return NAMES[host]


@pytest.mark.parametrize("host", HOSTS)
async def test_no_spelling_of_a_forbidden_address_is_called(host: str, connects: list[str]) -> None:
    assert len(HOSTS) >= 60
    with pytest.raises(ForbiddenAddress):
        await checked_endpoint(f"http://{host}/x", None, names)
    with pytest.raises(Dead):
        await handler(f"http://{host}/x", names).answer(read_update(update(1)), 1)
    assert connects == []


async def test_a_public_name_is_called_by_its_address() -> None:
    endpoint = await checked_endpoint("https://Good.example:8443/a?b=1", None, names)
    assert endpoint.url == "https://93.184.216.34:8443/a?b=1"
    assert (endpoint.host_header, endpoint.tls_name) == ("Good.example:8443", "good.example")


def test_networks_allow_their_addresses_but_never_metadata() -> None:
    some = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("169.254.0.0/16"))
    address = ipaddress.ip_address
    assert is_allowed(address("10.1.2.3"), some)
    assert is_allowed(address("::ffff:10.1.2.3"), some)
    assert not is_allowed(address("192.168.0.1"), some)
    assert not is_allowed(address("169.254.169.254"), some)
    assert is_allowed(address("192.168.0.1"), ())
    assert is_allowed(address("127.0.0.1"), ())
    for closed in ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "0.0.0.0", "224.0.0.1"):
        assert not is_allowed(address(closed), ()), closed


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every address that a connection was tried to; all but loopback are refused."""
    tried: list[str] = []
    loop = asyncio.selector_events.BaseSelectorEventLoop
    original = loop.sock_connect

    async def connect(self: Any, sock: Any, address: Any) -> None:
        tried.append(address[0])
        if not ipaddress.ip_address(address[0]).is_loopback:
            raise ConnectionRefusedError("only loopback in this test")
        await original(self, sock, address)

    monkeypatch.setattr(loop, "sock_connect", connect)
    return tried


def handler(url: str, resolve: Any, networks: Any = None) -> HttpHandler:
    target = HttpTarget(url=url, networks=networks)
    bot = Bot(
        slug="back",
        handler=HandlerName.HTTP,
        token=TOKEN.format(number=1),
        secrets=(SECRET.encode(),),
        http=target,
    )
    return HttpHandler(bot, target, clock=SYSTEM_CLOCK, resolve=resolve)


async def test_dns_rebinding_is_refused(connects: list[str]) -> None:
    answers = iter([["93.184.216.34"], ["127.0.0.1"]])

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return next(answers)

    back = handler("http://good.example:9/x", rebinding)
    with pytest.raises(Failed):
        await back.answer(read_update(update(1)), 1)
    assert connects == ["93.184.216.34"]
    with pytest.raises(Dead):
        await back.answer(read_update(update(1)), 2)
    assert connects == ["93.184.216.34"]
    await back.close()


async def test_a_redirect_to_metadata_is_not_followed(connects: list[str]) -> None:
    async def redirect(request: Request) -> Response:
        return RedirectResponse("http://169.254.169.254/latest/meta-data/")

    app = Starlette(routes=[Route("/x", redirect, methods=["POST"])])
    async with serve_app(app) as base:
        back = handler(f"{base}/x", names, networks=())
        with pytest.raises(Failed, match="307"):
            await back.answer(read_update(update(1)), 1)
        await back.close()
    assert set(connects) == {"127.0.0.1"}


async def test_the_host_header_has_the_name_of_the_service(connects: list[str]) -> None:
    seen: list[str] = []

    async def record_host(request: Request) -> Response:
        seen.append(request.headers["host"])
        return JSONResponse({"text": "seen"})

    app = Starlette(routes=[Route("/x", record_host, methods=["POST"])])
    async with serve_app(app) as base:
        port = base.rpartition(":")[2]
        back = handler(f"http://localhost:{port}/x", names, networks=())
        [call] = await back.answer(read_update(update(1)), 1)
        await back.close()
    assert (seen, call.parameters["text"]) == ([f"localhost:{port}"], "seen")


async def test_g11h_site_local_addresses_are_private() -> None:
    for text in ("fec0::1", "feff:ffff::1"):
        assert not is_allowed(ipaddress.ip_address(text), None)
        with pytest.raises(ForbiddenAddress):
            await checked_endpoint(f"http://[{text}]/x", None, names)
        assert is_allowed(ipaddress.ip_address(text), ())
