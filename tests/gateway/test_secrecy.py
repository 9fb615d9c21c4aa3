"""Everything at debug level: no token, secret or code in any output, page, answer or database."""

import base64
import io
import logging
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from telegram_gateway.gateway import Gateway
from telegram_gateway.masking import Mask, configure_logging
from tests.gateway import secret_search
from tests.gateway.backend import Backend, backend
from tests.gateway.conftest import Bots, post, update
from tests.gateway.fake_api import fake_api, until

TOKENS = {slug: f"{900 + place}:AAplanted{slug}token_{'xyz' * 8}{place}"
          for place, slug in enumerate(("echo", "back", "inline", "access"))}  # fmt: skip
SECRETS = {slug: f"planted-secret-of-{slug}-{'q' * 24}" for slug in TOKENS}
OLD = "planted-old-secret-" + "r" * 24
KEYS = [f"planted-signing-key-{number}".encode() * 2 for number in range(2)]
SIGNING = ["whsec_" + base64.b64encode(key).decode() for key in KEYS]
AUTH = "planted-auth-code-0123456789"
ADMIN = "planted-admin-token-0123456789"
WRONG_CODES = [f"planted-wrong-code-{number}-abcdef" for number in range(4)]
WRONG_SECRET = "planted-wrong-secret-" + "w" * 20
CANARY = "an ordinary word that is to be found: wintergreen"
PLANTED = [
    *TOKENS.values(), *(token.partition(":")[2] for token in TOKENS.values()), *SECRETS.values(),
    OLD, *SIGNING, AUTH, ADMIN, *WRONG_CODES, WRONG_SECRET,
]  # fmt: skip


@pytest.fixture
async def bots(tmp_path: Path, store_url: str) -> AsyncIterator[Bots]:
    async with fake_api() as api:
        yield Bots(api, tmp_path, store_url)


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    root, before = logging.getLogger(), logging.getLogger().level
    handlers = list(root.handlers)
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(before)


def gateway_with_planted_secrets(bots: Bots, back: Backend) -> Gateway:
    target = f"{{url: '{back.url}', network: private, signingSecretEnv: SIGNING, timeout: 5s}}"
    text = f"""
bots:
  access: {{handler: auth}}
  echo: {{handler: echo, async: true, requireAuth: false}}
  inline: {{handler: echo, requireAuth: false}}
  back: {{handler: http, async: true, requireAuth: false, maxAttempts: 1, http: {target}}}
"""
    variables = {f"BOT_{slug.upper()}_TOKEN": token for slug, token in TOKENS.items()}
    variables |= {f"BOT_{slug.upper()}_SECRET": secret for slug, secret in SECRETS.items()}
    return bots.gateway(
        text,
        **variables,
        BOT_ECHO_SECRET_OLD=OLD,
        SIGNING=" ".join(SIGNING),
        AUTH_SECRET=AUTH,
        ADMIN_TOKEN=ADMIN,
    )


async def exercise_everything(gateway: Gateway, bots: Bots, back: Backend) -> None:
    """Exercise everything that could leak: valid and invalid updates, codes, errors."""
    back.say(500, TOKENS["back"].encode())
    bots.api.faults.append((403, {"description": f"bad {TOKENS['echo']} {SECRETS['echo']}"}))
    bots.api.faults.append((502, {"description": f"proxy of {TOKENS['inline']}"}))
    numbers = iter(range(1, 100))

    async def say(slug: str, text: str, secret: str | None = None, **more: Any) -> int:
        sent = {"x_telegram_bot_api_secret_token": secret or SECRETS[slug]}
        body = update(next(numbers), text, **more)
        return (await post(gateway, slug, body, **sent)).status_code

    assert await say("echo", "first, refused by Telegram") == 200
    assert await say("inline", "refused, too") == 200
    assert await say("echo", CANARY) == 200
    assert await say("echo", "with the old one", OLD) == 200
    assert await say("echo", f"my code is {AUTH}") == 200
    assert await say("back", "a reply", reply_to_message={"text": f"/auth {AUTH}"}) == 200
    assert await say("back", CANARY) == 200
    for slug, code in zip(("access", "echo", "inline"), WRONG_CODES, strict=False):
        assert await say(slug, f"/auth {code}", chat=8, user=8) == 200
        assert await say(slug, f" /AUTH@Bot {code}", chat=8, user=8) == 200
        assert await say(slug, f"/auth {AUTH}") == 200
        assert await say(slug, "hello", WRONG_SECRET) == 401
    sent = {"x_telegram_bot_api_secret_token": SECRETS["echo"]}
    for command in (b"/auth", b"/\\u0061UTH"):
        broken = b'{"text": "' + command + b" " + WRONG_CODES[3].encode() + b'"}'
        assert (await post(gateway, "echo", broken, **sent)).status_code == 200
    await until(lambda: {CANARY, "with the old one"} <= set(bots.api.texts()), 60)
    await until(lambda: any(text.startswith("Sorry, your") for text in bots.api.texts()), 60)


async def read_everything(gateway: Gateway) -> dict[str, bytes]:
    """Crawl every page and API response that can be reached by links."""
    found: dict[str, bytes] = {}
    transport = httpx2.ASGITransport(app=gateway.app)
    headers = {"authorization": f"Bearer {ADMIN}", "accept": "*/*"}
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://gateway", headers=headers, timeout=60
    ) as client:
        document = (await client.get("/admin/api/openapi.json")).json()
        routes = [path for path, methods in document["paths"].items() if "get" in methods]
        jobs = (await client.get("/admin/api/jobs?limit=100")).text
        ids = sorted(set(re.findall(r'"id": ?"([^"]+)"', jobs)))
        assert ids
        waiting = ["/metrics", "/readyz", "/admin/", "/admin/api/openapi.json"]
        waiting += [f"/admin{path}" for path in routes if "{" not in path]
        waiting += [f"/admin{path.replace('{id}', one)}" for path in routes for one in ids
                    if path.endswith("/{id}")]  # fmt: skip
        waiting += [f"/admin/jobs/{one}" for one in ids]
        while waiting and len(found) < 90:
            path = waiting.pop()
            if path in found or "/live" in path or "/static" in path:
                continue
            answer = await client.get(path)
            found[path] = answer.content + repr(sorted(answer.headers.items())).encode()
            if answer.headers.get("content-type", "").startswith("text/html"):
                links = re.findall(r'href="(/admin[^"#]*)"', answer.text)
                waiting += [link.replace("&amp;", "&") for link in links]
    return found


async def test_a_run_at_debug_level_leaks_no_planted_secret(
    bots: Bots, tmp_path: Path, output: io.StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    assert len(set(PLANTED)) >= 20
    async with backend() as back:
        gateway = gateway_with_planted_secrets(bots, back)
        configure_logging(output, gateway.mask, level="debug", as_json=False)
        async with gateway.running():
            await gateway.check_tokens()
            await exercise_everything(gateway, bots, back)
            pages = await read_everything(gateway)
            stored = (
                secret_search.files(tmp_path)
                if bots.url.startswith("sqlite")
                else await secret_search.tables(bots.url)
            )
    written = capfd.readouterr()
    sources = {
        **pages,
        "the log": output.getvalue().encode(),
        "standard output": written.out.encode(),
        "standard error": written.err.encode(),
        "the database": stored,
        "the settings": repr((gateway.settings, gateway.bots)).encode(),
    }
    assert secret_search.leaks(sources, PLANTED) == []
    # The search works: an ordinary word is found.
    assert "DEBUG" in output.getvalue()
    assert secret_search.contains_secret(stored, CANARY)
    assert len(pages) > 30
    assert any(b"update.echo.echo" in page for page in pages.values())


def test_the_search_finds_a_secret_in_every_encoding() -> None:
    secret = "planted-secret-9f"
    for ahead in range(4):
        packed = base64.b64encode(b"x" * ahead + secret.encode() + b"yz")
        assert secret_search.contains_secret(b"..." + packed, secret)
    assert secret_search.contains_secret(secret.encode().hex().encode(), secret)
    assert not secret_search.contains_secret(base64.b64encode(b"planted-secret-8e"), secret)


def test_tokens_are_masked_in_any_text() -> None:
    mask = Mask(["a-secret-of-mine"])
    shown = mask(
        "POST https://api/bot123456:AAabcdefghijklmnopqrstuvwxyz_1234/getMe a-secret-of-mine"
    )
    assert shown == "POST https://api/bot***/getMe ***"
    assert "AAabc" not in mask("bot123456%3AAAabcdefghijklmnopqrstuvwxyz_1234")
