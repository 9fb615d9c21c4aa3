"""Secrets under 40 names in payloads, results, errors, log lines, progress notes, schedules and the
audit: none in a page, a response, the output of a command, a log line, or Prometheus text."""

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from forge_jobs import Forge
from forge_jobs.cli.commands import run
from forge_jobs.core.audit import AuditEntry
from forge_jobs.core.errors import Unavailable
from forge_jobs.kit import log
from forge_jobs.web import Role, mission_control
from forge_jobs.web.api.all import ROUTES
from forge_jobs.web.api.openapi import openapi_path
from forge_jobs.web.pages.all import PAGES
from tests.web.harness import REMOTE_CLIENT, WebHarness, credentials, web_harness

NAMES = [
    "password", "passwd", "pwd", "pass", "password2", "password_confirmation", "db_password_prod",
    "dbPassword", "passphrase", "api_key", "api-key", "apiKey", "X-Api-Key", "private-key",
    "privateKey", "access_key", "AWS_SECRET_ACCESS_KEY", "encryption_key", "signing_key", "jwt",
    "id_token", "access_token", "refreshToken", "csrftoken", "bot_tokens", "otp", "cvv", "ssn",
    "pin", "card_number", "session_id", "sessionid", "client_secret", "secret", "credentials",
    "Authorization", "Set-Cookie", "cookie", "smtp_pass", "recovery_code",
]  # fmt: skip


def secrets(place: str) -> dict[str, str]:
    """A secret of its own for every name in that place."""
    return {name: f"s3cret-{place}-{n:02}" for n, name in enumerate(NAMES)}


def _texts(place: str) -> str:
    """The secrets in running text, in four forms."""
    forms = ("{}={}", "{}: {}", "{{'{}': '{}'}}", '{{"{}": "{}"}}')
    planted = secrets(place).items()
    return "\n".join(forms[n % 4].format(*pair) for n, pair in enumerate(planted))


_PAYLOAD = {
    **secrets("payload"),
    "nested": [{"inner": secrets("nested")}],
    "text": _texts("text"),
    "dsn": "postgres://app:s3cret-dsn@db.example/app",
    "note": "curl -H 'Authorization: Bearer s3cret-bearer' https://u:s3cret-url@h.example",
}
_ERROR = "connect to redis://:s3cret-error-url@cache.example failed\n" + _texts("error")
_LOG = "using amqp://u:s3cret-log-url@mq.example\n" + _texts("log")
_PROGRESS = "at https://u:s3cret-progress@files.example, jwt=s3cret-progress-jwt"
_SCHEDULE = secrets("schedule")


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[WebHarness]:
    harness = web_harness(f"sqlite:///{tmp_path}/web.db")

    @harness.forge.task(queue="mail", max_attempts=1)
    async def leak(ctx: object, fails: bool = False, **given: object) -> object:
        return None

    yield harness
    await harness.forge.aclose()


async def enqueue_secrets(forge: Forge) -> list[str]:
    """Two jobs, one done and one dead, both with secrets in log, progress and result."""
    from forge_jobs.core.decide import decide, done
    from forge_jobs.core.instant import SECOND
    from forge_jobs.core.job import Claim, LogLine
    from forge_jobs.core.outcome import Dead
    from forge_jobs.store.jobs import Exchange, Note, Want
    from forge_jobs.store.processes import NewProcess

    store = await forge.aready()
    ids = [(await forge.aenqueue("send", _PAYLOAD, queue="mail")).id for _ in range(2)]
    now = forge.clock.now()
    owner = await store.processes.register(
        NewProcess(host_id="01HOSTA", label="a", queues=("mail",), pid=7, hostname="box")
    )
    asked = Exchange(owner=owner, number=1, want=[Want("mail", 2)])
    good, bad = (await store.jobs.exchange(asked)).claims
    line = LogLine(now + SECOND, "info", _LOG)
    notes = [Note(Claim(job.key, job.epoch), 0.5, _PROGRESS, (line,)) for job in (good, bad)]
    ends = [
        done(good, result=json.dumps(secrets("result")).encode(), ran_s=1.0),
        decide(bad, Dead(_ERROR), now=now),
    ]
    await store.jobs.exchange(Exchange(owner=owner, number=2, notes=notes, finish=ends))
    await forge.schedules.acreate("nightly", "0 3 * * *", "send", payload=_SCHEDULE)
    await store.metrics.record_action(
        AuditEntry(
            at=now, actor="ada", action="plant", subject=f"jobs where {_texts('subject')}",
            detail=secrets("detail"), before=secrets("before"), after={"note": _texts("after")},
        )
    )  # fmt: skip
    return ids


def leaked_secrets(text: str) -> list[str]:
    return [text[at : at + 24] for at in range(len(text)) if text.startswith("s3cret-", at)]


def test_there_are_forty_names() -> None:
    assert len(set(NAMES)) == 40


async def test_o5_no_page_response_or_log_line_contains_a_secret(
    harness: WebHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ids = await enqueue_secrets(harness.forge)
    store = await harness.forge.aready()
    records = [await store.jobs.get(job_id) for job_id in ids]
    assert all(record is not None and b"s3cret-payload-01" in record.payload for record in records)
    async with harness.client(Role.ADMIN) as client:
        paths = [openapi_path(route) for route in ROUTES if route.method == "GET"]
        paths += [page.path for page in PAGES]
        ok_count = 0
        for path in paths:
            for job_id in ids:
                where = path.replace("{id}", job_id).replace("{name}", "nightly")
                where = where.replace("{action}", "retry")
                response = await client.get(where)
                ok_count += response.status_code == 200
                assert leaked_secrets(response.text) == [], where
        assert ok_count > len(paths)
        listed = await client.post("/api/jobs/list", json={})
        assert leaked_secrets(listed.text) == []
        prometheus = await client.get("/metrics")
        assert (prometheus.status_code, leaked_secrets(prometheus.text)) == (200, [])
        for wrong in (
            await client.post("/api/jobs/enqueue", json={"kind": "send", **secrets("body")}),
            await client.get("/api/cron/token=s3cret-path"),
            await client.get("/cron/api-key=s3cret-path"),
            await client.get("/api/jobs/inspect/jwt:s3cret-path"),
            await client.get("/jobs/jwt:s3cret-path"),
        ):
            assert (wrong.status_code in (400, 404), leaked_secrets(wrong.text)) == (True, [])
        for search in ({"error": "s3cret-error-03"}, {"payload_search": "s3cret-payload-03"}):
            found = await client.post("/api/jobs/list", json={"filter": search})
            assert found.json()["rows"] == []
    assert leaked_secrets(caplog.text.replace("s3cret-path", "")) == []


async def test_o5_no_command_prints_a_secret(
    harness: WebHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = await enqueue_secrets(harness.forge)
    url = f"sqlite:///{tmp_path}/web.db"
    commands = [
        ["jobs", "list"], ["jobs", "list", "--status", "dead"], ["jobs", "show", ids[0]],
        ["jobs", "show", ids[1]], ["cron", "list"], ["cron", "show", "nightly"], ["audit"],
        ["queues", "list"], ["workers"], ["doctor"], ["stats"], ["jobs", "show", "jwt=s3cret-arg"],
    ]  # fmt: skip
    printed = ""
    for command in commands:
        for form in ([], ["--json"]):
            await asyncio.to_thread(run, [*command, *form, "--url", url])
            output = capsys.readouterr()
            assert leaked_secrets(output.out + output.err) == [], command
            printed += output.out
    assert "***" in printed
    # the same command with --reveal shows that the secrets are there
    await asyncio.to_thread(run, ["jobs", "show", ids[1], "--json", "--reveal", "--url", url])
    assert "s3cret-payload-00" in capsys.readouterr().out


@pytest.mark.parametrize("format", ["text", "json"])
def test_o5_no_log_line_of_the_package_contains_a_secret(format: str) -> None:
    stream = io.StringIO()
    logger = logging.getLogger("forge_jobs.planted")
    root = logging.getLogger("forge_jobs")
    before = (list(root.handlers), root.level, root.propagate)
    log.configure(format, "debug", stream=stream)  # type: ignore[arg-type]
    try:
        for name, secret in secrets("field").items():
            logger.warning("%s=%s", name, secret, extra={name: secret, "detail": {name: secret}})
        try:
            raise ValueError(_texts("raised"))
        except ValueError:
            logger.exception("failed: %s", _texts("message"))
    finally:
        root.handlers, root.level, root.propagate = before
    assert len(stream.getvalue()) > 2_000
    assert leaked_secrets(stream.getvalue()) == []


async def test_errors_of_an_unreachable_store_contain_no_password(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge = Forge("postgresql://app:s3cret-address@127.0.0.1:1/app")

    async def away() -> object:
        raise Unavailable("cannot reach postgresql://app:s3cret-address@127.0.0.1:1/app")

    monkeypatch.setattr(forge, "aready", away)
    app = mission_control(forge, auth=credentials())
    transport = httpx.ASGITransport(app, client=REMOTE_CLIENT)
    headers = {"authorization": "Bearer forge_test_admin"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://jobs.example", headers=headers
    ) as client:
        response = await client.get("/api/jobs")
        assert (response.status_code, response.json()["kind"]) == (503, "storage")
        assert response.headers["retry-after"] == "5"
        page = await client.get("/queues")
        assert page.status_code == 503
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200
        assert leaked_secrets(response.text + page.text + caplog.text) == []
    forge.close()
