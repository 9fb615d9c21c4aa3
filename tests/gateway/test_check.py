"""``telegram-gateway check``, and that what the page shows first can be started."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from telegram_gateway.addresses import ForbiddenAddress, checked_endpoint
from telegram_gateway.cli import app
from telegram_gateway.config import BadGatewayConfig, load
from telegram_gateway.config.bot_entry import _TOKEN as TOKEN_SHAPE
from telegram_gateway.service_check import check_services
from tests.gateway.conftest import Bots
from tests.gateway.fake_api import FakeApi

ECHO = "bots: {echo: {handler: echo, async: true, requireAuth: false}}"
SERVICE = "bots: {{back: {{handler: http, requireAuth: false, http: {{url: '{url}'{more}}}}}}}"


@pytest.fixture
def bots(tmp_path: Path) -> Bots:
    return Bots(FakeApi(), tmp_path)


def check(bots: Bots, yaml: str, **variables: str) -> tuple[int, str]:
    env = bots.environment(yaml, **variables)
    found = CliRunner().invoke(app, ["check"], env={"COLUMNS": "80", **env})
    return found.exit_code, found.output


def problems(bots: Bots, yaml: str, **variables: str) -> str:
    with pytest.raises(BadGatewayConfig) as found:
        load(bots.environment(yaml, **variables))
    return str(found.value)


# ---------------------------------------------------------------------- G6


@pytest.mark.parametrize(
    "url", ["http://10.0.0.5:8000/update", "http://localhost/update", "http://[fd00::1]/"]
)
def test_g6_an_internal_service_without_network_private_is_a_warning(bots: Bots, url: str) -> None:
    code, shown = check(bots, SERVICE.format(url=url, more=""))
    assert code == 0
    assert "warning: bots.back.http.url: the service has an internal address" in shown
    assert "write network: private" in shown
    assert "warning" not in check(bots, SERVICE.format(url=url, more=", network: private"))[1]


async def test_g6_the_error_says_the_remedy() -> None:
    with pytest.raises(ForbiddenAddress, match="write network: private, or a list of networks"):
        await checked_endpoint("http://10.0.0.5/", None)
    with pytest.raises(ForbiddenAddress, match="that no setting allows"):
        await checked_endpoint("http://169.254.169.254/", None)


async def test_g6_a_warning_is_logged_at_start(
    bots: Bots, caplog: pytest.LogCaptureFixture
) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        if host == "unknown.internal":
            raise socket.gaierror("no such name")
        return ["172.16.0.9"]

    url = "http://shop.internal:8000/telegram"
    gateway = bots.gateway(SERVICE.format(url=url, more=""), made={"resolve": resolve})
    await gateway.check_services()
    assert "bots.back.http.url: the service has an internal address" in caplog.text
    unknown = bots.gateway(SERVICE.format(url="http://unknown.internal/", more=""))
    [warning] = await check_services(unknown.bots, resolve)
    assert "cannot be resolved on this machine; an internal service also needs network" in warning


# ---------------------------------------------------------------------- G11


def test_g11b_check_refuses_a_database_that_cannot_be_used(bots: Bots, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is not a database, but some other file", "utf-8")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        for url, code, reason in (
            ("mysql://user:planted-password@host/db", 2, "scheme 'mysql'"),
            ("gateway.db", 2, "has no scheme"),
            (f"sqlite:///{tmp_path}/missing/gateway.db", 1, "is not a directory"),
            (f"sqlite:///{tmp_path}/text.db", 1, "not a database"),
            (f"postgresql://me:planted-password@127.0.0.1:{port}/x", 1, "DATABASE_URL"),
        ):
            found, shown = check(bots, ECHO, DATABASE_URL=url)
            assert (found, reason in shown) == (code, True), (url, shown)
            assert "DATABASE_URL" in shown
            assert "planted-password" not in shown
    assert check(bots, ECHO)[0] == 0
    assert not (tmp_path / "gateway.db").exists()


def test_g11c_a_misspelt_kind_of_update_is_refused(bots: Bots) -> None:
    yaml = ECHO.replace("async", "allowedUpdates: [mesage, callbackquery, poll], async")
    text = problems(bots, yaml)
    assert "'mesage' is not a kind of update: did you mean 'message'?" in text
    assert "'callbackquery' is not a kind of update: did you mean 'callback_query'?" in text
    newer = ECHO.replace("async", "allowedUpdates: [message, hologram], async")
    warnings = load(bots.environment(newer))[2]
    assert any("'hologram' is not a kind of update that is known here" in one for one in warnings)


def test_g11d_a_session_without_a_bot_to_open_one_is_refused(bots: Bots) -> None:
    text = problems(bots, "bots: {echo: {handler: echo}}")
    assert "bots.echo.requireAuth: needs a bot with handler: auth" in text
    load(bots.environment("bots: {echo: {handler: echo}, access: {handler: auth}}"))


@pytest.mark.processes
def test_g11e_the_first_example_of_the_page_starts(tmp_path: Path, project_root: Path) -> None:
    page = (project_root / "docs" / "gateway.md").read_text("utf-8")
    blocks = re.findall(r"```(\w*)\n(.*?)```", page, re.DOTALL)
    (kind, yaml), (_, shell) = blocks[:2]
    assert kind == "yaml"
    (tmp_path / "bots.yaml").write_text(yaml, "utf-8")
    script = shell.split("telegram-gateway serve")[0]
    assert "telegram-gateway check" in script
    (tmp_path / "telegram-gateway").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m telegram_gateway "$@"\n', "utf-8"
    )
    (tmp_path / "telegram-gateway").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    env["PYTHONPATH"] = os.environ.get("PYTHONPATH", str(project_root / "src"))
    ran = subprocess.run(
        ["sh", "-e", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "bot       hello: echo, queue, serial, open, webhook" in ran.stdout
    assert ran.stderr == ""


def test_g11f_the_webhook_path_and_https_are_named(bots: Bots, project_root: Path) -> None:
    page = (project_root / "docs" / "gateway.md").read_text("utf-8")
    section = page.partition("## Webhooks")[2].partition("\n## ")[0]
    for named in ("/bot/SLUG", "HTTPS", "8443", "reverse proxy", "PUBLIC_URL"):
        assert named in section
    code, shown = check(bots, ECHO, PUBLIC_URL="https://tg.example", TELEGRAM_API_BASE="")
    assert code == 0
    assert "https://tg.example/bot/echo" in shown
    for url in ("http://tg.example", "https://tg.example:9000"):
        assert "PUBLIC_URL: must be https://" in problems(
            bots, ECHO, PUBLIC_URL=url, TELEGRAM_API_BASE=""
        )


def test_g11l_sqlite_in_memory_creates_no_file(bots: Bots, tmp_path: Path) -> None:
    for url in ("sqlite:///:memory:", "sqlite:////:memory:"):
        assert "write memory://" in problems(bots, ECHO, DATABASE_URL=url)
    assert check(bots, ECHO, DATABASE_URL="memory://")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["bots.yaml"]


def test_the_tokens_of_pages_and_examples_have_the_right_shape(project_root: Path) -> None:
    pages = [*project_root.glob("docs/gateway*.md"), *project_root.glob("examples/gateway/*.md")]
    found = [
        token
        for page in pages
        for token in re.findall(r"\b\d{4,}:[A-Za-z][\w-]{10,}", page.read_text("utf-8"))
    ]
    assert len(found) >= 3
    assert [token for token in found if not TOKEN_SHAPE.fullmatch(token)] == []
