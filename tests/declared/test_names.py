"""U14: kinds and argument names are checked against what workers have published."""

import logging
from typing import Any

import httpx
import pytest

from forge_jobs import BadArguments, EnqueueRequest, Forge, HandlerRegistry, QueueRuntime
from forge_jobs.core.selection import Filter
from forge_jobs.web import Role, mission_control
from tests.cli.conftest import InProcess
from tests.declared.conftest import SETTINGS, publish
from tests.web.harness import credentials, token

GREETED = '{"name": "Ada"}'


def greeting(url: str) -> Forge:
    forge = Forge(url, settings=SETTINGS)

    @forge.task
    def greet(name: str, loud: bool = False) -> None: ...

    return forge


@pytest.fixture
async def known(shared_url: str) -> str:
    """A store in which a worker has published ``greet``."""
    app = greeting(shared_url)
    await publish(app)
    await app.aclose()
    return shared_url


@pytest.fixture
def shell(known: str, capsys: pytest.CaptureFixture[str]) -> InProcess:
    return InProcess(known, capsys)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("enqueue", "grete", GREETED), ["did you mean 'greet'?", "Known kinds: greet", "--force"]),
        (("enqueue", "zebra"), ["no worker has published the kind 'zebra'.", "Known kinds: greet"]),
        (
            ("enqueue", "greet", '{"nmae": "Ada"}'),
            ["unexpected argument 'nmae', did you mean 'name'?", "(name, loud = ...)", "--force"],
        ),
        (("enqueue", "greet"), ["missing argument 'name'", "(name, loud = ...)"]),
        (("cron", "create", "n", "@daily", "nokind"), ["'nokind'", "Known kinds: greet"]),
        (("cron", "create", "n", "@daily", "grete"), ["did you mean 'greet'?", "--force"]),
        (("cron", "create", "n", "@daily", "greet"), ["missing argument 'name'"]),
    ],
)
def test_u14_commands_refuse_and_force(
    shell: InProcess, words: tuple[str, ...], said: list[str]
) -> None:
    refused = shell.forge(*words)
    assert (refused.code, refused.out) == (2, "")
    for text in said:
        assert text in " ".join(refused.err.split())
    assert shell.forge("jobs", "list", "--json").data["jobs"] == []
    assert shell.forge("cron", "list", "--json").data["schedules"] == []
    forced = shell.forge(*words, "--force")
    assert (forced.code, forced.err) == (0, "")


def test_u14_right_names_pass(shell: InProcess) -> None:
    for words in (
        ("enqueue", "greet", GREETED),
        ("cron", "create", "n", "@daily", "greet", "--payload", GREETED),
        ("cron", "set", "n", "--payload", '{"name": "Grace", "loud": true}'),
    ):
        answer = shell.forge(*words)
        assert (answer.code, answer.err) == (0, "")
    assert shell.forge("cron", "set", "n", "--payload", "{}").code == 2
    assert shell.forge("cron", "set", "n", "--payload", "{}", "--force").code == 0
    # A payload that does not change is not looked at.
    assert shell.forge("cron", "set", "n", "--cron", "@hourly").code == 0


def test_u14_before_anything_is_published_a_note_says_so(
    shared_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    in_process = InProcess(shared_url, capsys)
    answer = in_process.forge("enqueue", "grete", GREETED)
    assert answer.code == 0
    assert "No worker has published its tasks yet" in answer.err
    assert len(answer.out.split()) == 1
    assert in_process.forge("cron", "create", "n", "@daily", "nokind").code == 0


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/api/jobs/enqueue", {"kind": "grete"}, "did you mean 'greet'?"),
        ("/api/jobs/enqueue", {"kind": "greet", "payload": {"x": 1}}, "(name, loud = ...)"),
        ("/api/jobs/enqueue", {"kind": "greet"}, "missing argument 'name'"),
        (
            "/api/cron",
            {"name": "n", "expression": "@daily", "kind": "grete"},
            "did you mean 'greet'?",
        ),
        (
            "/api/cron",
            {"name": "n", "expression": "@daily", "kind": "greet", "payload": {"nam": 1}},
            "did you mean 'name'?",
        ),
    ],
)
async def test_u14_routes_refuse_and_force(
    known: str, other: Forge, path: str, body: dict[str, Any], said: str
) -> None:
    web = mission_control(other, auth=credentials())
    transport = httpx.ASGITransport(web, client=("10.1.2.3", 4711))
    headers = {"authorization": f"Bearer {token(Role.ADMIN)}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://jobs.example", headers=headers
    ) as client:
        refused = await client.post(path, json=body)
        assert refused.status_code == 400
        assert said in refused.json()["msg"]
        assert '"force": true' in refused.json()["msg"]
        assert refused.json()["code"] in ("unknown_kind", "bad_arguments")
        assert (await client.post(path, json={**body, "force": True})).status_code < 300


async def test_u14_python_refuses_wrong_names_and_takes_unknown_kinds(
    known: str, other: Forge, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(BadArguments, match=r"did you mean 'name'\?.*check=False"):
        await other.aenqueue("greet", {"nmae": "Ada"})
    await other.aenqueue("greet", {"nmae": "Ada"}, check=False)
    runtime = QueueRuntime(await other.aready(), HandlerRegistry())
    with pytest.raises(BadArguments):
        await runtime.enqueue(EnqueueRequest(kind="greet", payload={"nmae": "Ada"}))
    await runtime.enqueue(EnqueueRequest(kind="greet", payload={"nmae": "Ada"}, check=False))
    with caplog.at_level(logging.WARNING, "forge_jobs.client"):
        for _ in range(2):
            await other.aenqueue("grete", {"any": 1})
        await other.aenqueue("zebra", {})
    assert [record.getMessage() for record in caplog.records] == [
        "no worker has published the kind 'grete', did you mean 'greet'? The job waits for one"
    ]
    page = await (await other.aready()).jobs.page(Filter(), limit=10)
    assert len(page.jobs) == 5


async def test_u14_a_rolling_deploy_refuses_neither_version(known: str, other: Forge) -> None:
    """Old workers have published ``name, loud``; the new version takes ``name, cc`` as well."""
    new = Forge(known, settings=SETTINGS)

    @new.task
    def greet(name: str, cc: str = "") -> None: ...

    # The code decides where it is, whatever old workers have published.
    await new.aenqueue("greet", {"name": "Ada", "cc": "Grace"})
    await greet.aenqueue("Ada", cc="Grace")
    with pytest.raises(BadArguments, match="'cc'"):
        await other.aenqueue("greet", {"name": "Ada", "cc": "Grace"})
    await publish(new)
    async with Forge(known) as producer:
        await producer.aenqueue("greet", {"name": "Ada", "cc": "Grace"})
        await producer.aenqueue("greet", {"name": "Ada", "loud": True})
        with pytest.raises(BadArguments):
            await producer.aenqueue("greet", {"name": "Ada", "loud": True, "cc": "Grace"})
    await new.aclose()
