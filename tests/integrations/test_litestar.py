"""The plugin for Litestar."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import pytest
from litestar import Litestar, post
from litestar.di import NamedDependency
from litestar.params import FromPath
from litestar.testing import TestClient
from starlette.requests import Request

from forge_jobs import BadOption, Forge
from forge_jobs.integrations.litestar import ForgePlugin
from forge_jobs.web import Identity, Role


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Litestar configures the logging of the process; other tests have their own."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


@post("/greet/{name:str}")
async def post_greet(name: FromPath[str], forge: NamedDependency[Forge]) -> str:
    job = await forge.aenqueue("greet", {"name": name})
    return await job.aresult(timeout=20)


def who(request: Request) -> Identity | None:
    return Identity("ada", Role.VIEWER) if request.headers.get("x-user") == "ada" else None


def test_the_plugin_runs_jobs_and_serves_mission_control_again_and_again(any_url: str) -> None:
    forge, log = Forge(any_url), list[str]()

    @forge.task(queue="mail")
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    @asynccontextmanager
    async def own(app: Litestar) -> AsyncGenerator[None]:
        log.append("set up")
        yield
        log.append(f"closed, jobs run here: {len(forge.client.workers)}")

    plugin = ForgePlugin(forge, queues=["mail"], mission_control="/ops/jobs", auth=who)
    app = Litestar([post_greet], plugins=[plugin], lifespan=[own])
    for name in ("Ada", "Grace"):
        with TestClient(app) as client:
            assert client.post(f"/greet/{name}").text == f"Hello, {name}!"
            assert client.get("/ops/jobs/jobs").status_code == 403
            page = client.get("/ops/jobs/jobs", headers={"x-user": "ada"})
            assert page.status_code == 200
            assert 'href="/ops/jobs/jobs/' in page.text
    # The worker has ended before what it may need is closed.
    assert log == ["set up", "closed, jobs run here: 0"] * 2

    async def workers() -> int:
        store = await forge.aready()
        found = await store.processes.all()
        await forge.aclose()
        return len(found)

    assert asyncio.run(workers()) == 0


def test_without_a_worker_jobs_wait() -> None:
    forge = Forge("memory://")

    @forge.task
    def note() -> None: ...

    @post("/note")
    async def post_note(forge: NamedDependency[Forge]) -> str:
        return (await (await forge.aenqueue("note")).arefresh()).status

    app = Litestar([post_note], plugins=[ForgePlugin(forge, worker=False)])
    with TestClient(app) as client:
        assert client.post("/note").text == "pending"


def test_mission_control_needs_a_path_of_its_own() -> None:
    with pytest.raises(BadOption, match="would hide the application"):
        ForgePlugin(Forge("memory://"), mission_control="/")
