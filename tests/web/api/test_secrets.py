"""Twenty secrets in payloads, errors, logs and results: none in a page, a response or the log."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from forge_jobs import Forge
from forge_jobs.core.errors import Unavailable
from forge_jobs.web import Role, mission_control
from forge_jobs.web.api.all import ROUTES
from forge_jobs.web.api.openapi import openapi_path
from forge_jobs.web.pages.all import PAGES
from tests.web.harness import REMOTE_CLIENT, WebHarness, credentials, web_harness

_PAYLOAD = {
    "password": "s3cret-01",
    "user": {"api_key": "s3cret-02", "apiKey": "s3cret-03", "name": "ada"},
    "headers": {"Authorization": "Bearer s3cret-04", "Cookie": "sid=s3cret-05"},
    "list": [{"access_token": "s3cret-06"}, {"client_secret": "s3cret-07"}],
    "dsn": "postgres://app:s3cret-08@db.example/app",
    "note": "curl -H 'Authorization: Bearer s3cret-09' https://u:s3cret-10@h.example",
    "private_key": "s3cret-11",
    "credentials": {"any": "s3cret-12"},
}
_ERROR = "connect to redis://:s3cret-13@cache.example failed, password=s3cret-14, token: s3cret-15"
_LOG = "using api_key=s3cret-16 for amqp://u:s3cret-17@mq.example"
_PROGRESS = "at https://u:s3cret-18@files.example"
_RESULT = {"token": "s3cret-19"}
_SCHEDULE = {"password": "s3cret-20"}
_SECRETS = [f"s3cret-{n:02}" for n in range(1, 21)]


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
        done(good, result=b'{"token":"s3cret-19"}', ran_s=1.0),
        decide(bad, Dead(_ERROR), now=now),
    ]
    await store.jobs.exchange(Exchange(owner=owner, number=2, notes=notes, finish=ends))
    await forge.schedules.acreate("nightly", "0 3 * * *", "send", payload=_SCHEDULE)
    return ids


def leaked_secrets(text: str) -> list[str]:
    return [secret for secret in _SECRETS if secret in text]


async def test_no_page_response_or_log_line_contains_a_secret(
    harness: WebHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ids = await enqueue_secrets(harness.forge)
    store = await harness.forge.aready()
    records = [await store.jobs.get(job_id) for job_id in ids]
    assert all(record is not None and b"s3cret-01" in record.payload for record in records)
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
        wrong = await client.post(
            "/api/jobs/enqueue", json={"kind": "send", "password": "s3cret-01"}
        )
        assert (wrong.status_code, leaked_secrets(wrong.text)) == (400, [])
    assert leaked_secrets(caplog.text) == []
    assert leaked_secrets(" ".join(str(vars(record)) for record in caplog.records)) == []


async def test_errors_of_an_unreachable_store_contain_no_password(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge = Forge("postgresql://app:s3cret-08@127.0.0.1:1/app")

    async def away() -> object:
        raise Unavailable("cannot reach postgresql://app:s3cret-08@127.0.0.1:1/app")

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
