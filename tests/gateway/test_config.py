"""bots.yaml and the environment: all mistakes are reported together, without secrets."""

from pathlib import Path

import pytest

from forge_jobs import EngineSettings
from telegram_gateway.config import BadGatewayConfig, HandlerName, Ordering, load
from telegram_gateway.config.durations import go_seconds
from tests.gateway.conftest import AUTH_SECRET, SECRET, TOKEN, Bots
from tests.gateway.fake_api import FakeApi

ORIGINAL = """
bots:
  inline:
    handler: auth
  echo:
    handler: echo
    async: true
  back:
    handler: http
    requireAuth: false
    http:
      url: http://backend.internal:8000/update
      timeout: 45s
"""


@pytest.fixture
def runtime(tmp_path: Path) -> Bots:
    return Bots(FakeApi(), tmp_path)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("168h", 604_800.0), ("1h30m", 5_400.0), ("500ms", 0.5), ("1.5h", 5_400.0), ("0", 0.0),
        ("-5s", -5.0), (".5s", 0.5), ("1µs", 1e-6), ("5", None), ("7d", None), ("", None),
        ("5 s", None), ("h", None), ("٣s", None),
    ],
)  # fmt: skip
def test_durations_have_gos_syntax(text: str, seconds: float | None) -> None:
    assert go_seconds(text) == seconds


def test_a_file_of_the_original_gateway_loads_unchanged(runtime: Bots) -> None:
    settings, bots, warnings = load(runtime.environment(ORIGINAL))
    receiver, echo, back = bots
    assert (receiver.handler, receiver.require_auth, receiver.in_queue) == (
        HandlerName.AUTH,
        False,
        False,
    )
    assert (echo.require_auth, echo.in_queue, echo.ordering) == (True, True, Ordering.SERIAL)
    assert echo.backoff_s == (30.0, 120.0, 600.0, 3_600.0)
    assert (echo.max_attempts, echo.id) == (5, "101")
    assert back.http is not None
    assert back.http.timeout_s == 30.0
    assert "bots.back.http.timeout: is limited to 30 s" in warnings
    assert settings.done_retention_s == 604_800.0
    assert settings.dead_retention_s is None
    shown = repr((settings, bots))
    for hidden in (SECRET, AUTH_SECRET, TOKEN.format(number=101)):
        assert hidden not in shown


def test_all_mistakes_are_reported_together(runtime: Bots) -> None:
    text = """
bots:
  Bad_Slug: {handler: echo}
  echo: {handler: ehco, asnyc: true}
  back: {handler: http, async: maybe, http: {url: "ftp://x", tiemout: 5s}}
  inline: {handler: auth, async: true}
  none: {handler: echo, requireAuth: false}
other: 1
"""
    env = runtime.environment(
        text,
        DATABASE_URL="",
        ALLOWED_USERS="1,x",
        WORKERS="many",
        LEASE="soon",
        AUTH_SECRET="short",
    )
    env["BOT_BACK_SECRET"] = "too-short"
    with pytest.raises(BadGatewayConfig) as caught:
        load(env)
    wanted = (
        "bots.Bad_Slug: a slug has", "bots.echo.asnyc: is unknown", "bots.echo.handler: 'ehco'",
        "bots.back.async: 'maybe'", "bots.back.http.url: must be", "bots.back.http.tiemout:",
        "bots.back: BOT_BACK_SECRET needs 32", "bots.inline.async: needs DATABASE_URL",
        "bots.inline.async: must be false for auth", "bots.none: BOT_NONE_TOKEN is not set",
        "bots.none: BOT_NONE_SECRET is not set", "ALLOWED_USERS: 'x'", "WORKERS: 'many'",
        "LEASE: 'soon'", "AUTH_SECRET: is shorter", "unknown key 'other'",
    )  # fmt: skip
    for line in wanted:
        assert any(line in problem for problem in caught.value.problems), line
    assert "too-short" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "variables", "wanted"),
    [
        ("bots: {}", {}, "contains no bot"),
        ("[]", {}, "needs the key bots"),
        ("bots: {echo: {handler: echo}, echo: {handler: echo}}", {}, "'echo' is written twice"),
        (
            "bots: {echo: {handler: echo}, access: {handler: auth}}",
            {"AUTH_SECRET": ""},
            "needs AUTH_SECRET",
        ),
        ("bots: {echo: {handler: command, command: {argv: [x]}}}", {}, "must be true for command"),
        (
            "bots: {echo: {handler: echo}, back: {handler: echo, tokenEnv: BOT_ECHO_TOKEN}}",
            {},
            "has the token of echo",
        ),
        (
            "bots: {echo: {handler: echo, requireAuth: false}}",
            {"HEARTBEAT": "10s"},
            "more than a third of LEASE",
        ),
        (
            "bots: {echo: {handler: echo, requireAuth: false}}",
            {"ADMIN_TOKEN": "short"},
            "ADMIN_TOKEN: is shorter",
        ),
        (
            "bots: {inline: {handler: auth}}",
            {"ADMIN_TOKEN": "long enough to be one", "DATABASE_URL": ""},
            "ADMIN_TOKEN: enables pages about jobs and needs DATABASE_URL",
        ),
        (
            "bots: {back: {handler: http, async: true, http: {url: 'http://x/', timeout: 2m}}}",
            {"QUEUE_STUCK_TIMEOUT": "1m"},
            "less than the timeout of bots.back",
        ),
    ],
)
def test_invalid_combinations_are_refused(
    runtime: Bots, text: str, variables: dict[str, str], wanted: str
) -> None:
    with pytest.raises(BadGatewayConfig, match=wanted):
        load(runtime.environment(text, **variables))


def test_secrets_are_read_from_files_and_bad_durations_use_the_default(runtime: Bots) -> None:
    file = runtime.folder / "token"
    file.write_text(TOKEN.format(number=77) + "\n", encoding="utf-8")
    env = runtime.environment(
        "bots: {echo: {handler: echo, requireAuth: false}}",
        BOT_ECHO_TOKEN="",
        BOT_ECHO_TOKEN_FILE=str(file),
        QUEUE_JANITOR_INTERVAL="-1h",
    )
    settings, [bot], warnings = load(env)
    assert bot.id == "77"
    assert settings.janitor_interval_s == 3_600.0
    assert any("QUEUE_JANITOR_INTERVAL" in warning for warning in warnings)


def test_lease_and_heartbeat_default_to_those_of_forge_jobs(runtime: Bots) -> None:
    text = "bots: {echo: {handler: echo, requireAuth: false}}"
    settings, _, _ = load(runtime.environment(text))
    assert (settings.lease_s, settings.heartbeat_s) == (EngineSettings().lease_s, None)
    settings, _, _ = load(runtime.environment(text, LEASE="60s", HEARTBEAT="10s"))
    assert (settings.lease_s, settings.heartbeat_s) == (60.0, 10.0)
