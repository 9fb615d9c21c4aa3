"""The curl command of each form does what the form does; links to traces; links in log lines."""

import logging
import re
import shlex

import pytest

from forge_jobs import BadConfig, Forge, config
from forge_jobs.core.alert_rule import new_rule
from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.store.alerts import AlertRules
from forge_jobs.web import Role
from forge_jobs.web.curl import _CALLS, bulk_curl, curl_command
from forge_jobs.web.pages.all import FORMS
from forge_jobs.web.trace_link import trace_id, trace_link
from tests.web.harness import web_harness

FIELDS = {"ids": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "slots": "3"}


@pytest.mark.parametrize("call", _CALLS, ids=lambda call: call.form)
async def test_the_call_of_a_form_is_accepted(call: object) -> None:
    """Each one is a request of the API: it is never refused as malformed or unknown."""
    form = call.form  # type: ignore[attr-defined]
    names = {"id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "host_id": "nobody"}
    names["id"] = "3f9ac21b" if "/errors/" in form else names["id"]
    path = re.sub(r"\{(\w+)\}", lambda one: names.get(one[1], "mail"), form)
    limit = "task:send" if "/limits/lift" in form or "/limits/reset" in form else "smtp"
    command = shlex.split(curl_command(f"/mounted{path}", {**FIELDS, "name": limit}))
    method, url = command[2], command[-1].removeprefix("$FORGE_WEB_URL")
    body = command[command.index("-d") + 1] if "-d" in command else None
    with web_harness() as harness:
        store = await harness.forge.aready()
        await store.queues.ensure("mail", slots=1)
        rule = new_rule("mail", "backlog", url="https://hooks.example/")
        await AlertRules(store).put("mail", lambda known: rule)
        async with harness.client(Role.ADMIN) as admin:
            headers = {"content-type": "application/json"}
            answer = await admin.request(method, url, content=body, headers=headers)
    missing = answer.status_code == 404 and answer.json()["code"] == "not_found"
    assert answer.is_success or (missing and "no such route" not in answer.text), answer.text


def test_every_call_belongs_to_a_form() -> None:
    paths = {form.path for form in FORMS}
    for call in _CALLS:
        generic = re.sub(r"^/act/jobs/\w+$", "/act/jobs/{action}", call.form)
        assert generic in paths, call.form


async def test_a_notice_has_the_command_and_the_call() -> None:
    with web_harness() as harness:
        await (await harness.forge.aready()).queues.ensure("mail", slots=1)
        async with harness.client(Role.OPERATOR) as operator:
            headers = {"hx-request": "true"}
            answer = await operator.post("/act/queues/mail/pause", data={}, headers=headers)
            assert "$FORGE_TOKEN" in answer.headers["hx-trigger"]
            assert "/api/queue/mail/paused" in answer.headers["hx-trigger"]


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ("00-4bf92f3577b34da6-00f067aa0ba902b7-01 a=b", "4bf92f3577b34da6"),
        ("00-ab/../x\"><script>-1-1", "ab%2F..%2Fx%22%3E%3Cscript%3E"),
        ("own id", "own%20id"),
    ],
)  # fmt: skip
def test_a_trace_id_is_encoded_into_the_address(trace: str, expected: str) -> None:
    assert trace_link("https://t.example/{trace_id}", trace) == f"https://t.example/{expected}"
    assert trace_link(None, trace) is None
    assert trace_id("00-a-b-01") == "a"


@pytest.mark.parametrize("value", ["javascript:alert({trace_id})", "https://t.example/", "t"])
def test_an_address_of_traces_must_be_http_and_take_an_id(value: str) -> None:
    with pytest.raises(BadConfig, match="FORGE_TRACE_URL"):
        config.trace_url({"FORGE_TRACE_URL": value})


async def test_a_job_links_to_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_TRACE_URL", "https://t.example/?q={trace_id}&x=1")
    with web_harness() as harness:
        store = await harness.forge.aready()
        (job,) = await store.jobs.enqueue([NewJob(kind="a", queue="b", trace="00-abc-def-01")])
        async with harness.client(Role.VIEWER) as viewer:
            page = (await viewer.get(f"/jobs/{job.id}")).text
    assert '<a href="https://t.example/?q=abc&amp;x=1"' in page


async def test_log_lines_about_jobs_have_their_address(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FORGE_WEB_URL", "https://jobs.example/")
    caplog.set_level(logging.WARNING, "forge_jobs.engine")
    async with Forge("memory://") as forge:

        @forge.task(max_attempts=1)
        async def fail() -> None:
            raise ValueError("no")

        job = await fail.aenqueue()
        await forge.adrain()
    urls = [record.job_url for record in caplog.records]  # type: ignore[attr-defined]
    assert urls == [f"https://jobs.example/jobs/{job.id}"]


async def test_the_call_of_a_bulk_action_starts_it() -> None:
    wanted = Filter(kind="send", statuses=(JobStatus.DEAD,), enqueued_from=1_700_000_000_000_000)
    command = shlex.split(bulk_curl("retry", wanted))
    assert bulk_curl("retry", Filter(parent="x")) == ""
    with web_harness() as harness:
        async with harness.client(Role.OPERATOR) as operator:
            headers = {"content-type": "application/json"}
            url = command[-1].removeprefix("$FORGE_WEB_URL")
            body = command[command.index("-d") + 1]
            answer = await operator.post(url, content=body, headers=headers)
            assert answer.is_success, answer.text
            page = (await operator.get("/bulk/retry?status=dead&kind=send")).text
            assert "$FORGE_WEB_URL/api/bulk" in page
        await harness.app.aclose()
