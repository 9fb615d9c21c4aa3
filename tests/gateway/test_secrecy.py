"""Everything at debug level: no token, secret or code in any output, page or database file."""

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from telegram_gateway.masking import Mask, log_to
from tests.gateway.backend import backend
from tests.gateway.conftest import AUTH_SECRET, SECRET, TOKEN, Bots, post, update
from tests.gateway.fake_api import until

SIGNING = "whsec_" + "QUJD" * 10


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    root, before = logging.getLogger(), logging.getLogger().level
    handlers = list(root.handlers)
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(before)


async def test_a_run_at_debug_level_shows_no_secret(
    bots: Bots, tmp_path: Path, output: io.StringIO
) -> None:
    async with backend() as back:
        back.say(500, TOKEN.format(number=102).encode())
        text = f"""
bots:
  access: {{handler: auth}}
  echo: {{handler: echo, async: true, requireAuth: false}}
  back:
    handler: http
    async: true
    requireAuth: false
    maxAttempts: 1
    http: {{url: "{back.url}", network: private, signingSecretEnv: SIGNING}}
"""
        gateway = bots.gateway(text, SIGNING=SIGNING)
        log_to(output, gateway.mask, level="debug", as_json=False)
        async with gateway.running():
            await gateway.greet()
            bots.api.faults.append((403, {"description": f"bad {TOKEN.format(number=101)}"}))
            await post(gateway, "echo", update(1))
            await post(gateway, "echo", update(2), x_telegram_bot_api_secret_token="wrong")
            await post(gateway, "back", update(3))
            await post(gateway, "access", update(4, f"/auth {AUTH_SECRET}"))
            await post(gateway, "echo", update(5, f"/auth {AUTH_SECRET}"))
            await until(lambda: len(bots.api.texts()) >= 2)
            transport = httpx2.ASGITransport(app=gateway.app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client:
                pages = [(await client.get(path)).text for path in ("/metrics", "/readyz")]
    logged = output.getvalue()
    assert "DEBUG" in logged
    files = [path.read_bytes() for path in tmp_path.rglob("*.db*") if path.is_file()]
    assert files
    hidden = [SECRET, AUTH_SECRET, SIGNING, *(TOKEN.format(number=n) for n in (101, 102, 104))]
    for secret in [*hidden, TOKEN.format(number=101).partition(":")[2]]:
        assert secret not in logged
        assert all(secret not in page for page in pages)
        assert all(secret.encode() not in data for data in files)


def test_tokens_are_hidden_in_any_text() -> None:
    mask = Mask(["a-secret-of-mine"])
    shown = mask(
        "POST https://api/bot123456:AAabcdefghijklmnopqrstuvwxyz_1234/getMe a-secret-of-mine"
    )
    assert shown == "POST https://api/bot***/getMe ***"
    assert "AAabc" not in mask("bot123456%3AAAabcdefghijklmnopqrstuvwxyz_1234")
