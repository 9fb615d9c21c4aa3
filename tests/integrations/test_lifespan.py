"""``lifespan(forge)`` in Starlette and FastAPI: the same application again and again, and its own
lifespan around the worker."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from forge_jobs import BadOption, Forge
from forge_jobs.integrations import fastapi, starlette
from forge_jobs.integrations.fastapi import CurrentForge, inject
from forge_jobs.integrations.lifespan import lifespan
from forge_jobs.web import Identity, Role, mission_control


def fastapi_app(forge: Forge, **options: Any) -> FastAPI:
    @forge.task(queue="mail")
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    app = FastAPI(lifespan=fastapi.lifespan(forge, **options))

    @app.post("/greet/{name}")
    async def post_greet(name: str, current: CurrentForge) -> str:
        job = await current.aenqueue("greet", {"name": name})
        return await job.aresult(timeout=20)

    return app


async def workers(forge: Forge) -> int:
    store = await forge.aready()
    count = len(await store.processes.all())
    await forge.aclose()
    return count


def test_two_test_clients_one_after_the_other(any_url: str) -> None:
    forge = Forge(any_url)
    app = fastapi_app(forge, queues=["mail"])
    for name in ("Ada", "Grace"):
        with TestClient(app) as client:
            assert client.post(f"/greet/{name}").json() == f"Hello, {name}!"
    assert asyncio.run(workers(forge)) == 0


def test_without_a_worker_jobs_wait(any_url: str) -> None:
    forge = Forge(any_url)

    @forge.task
    def note() -> None: ...

    def post_note(request: Request) -> Response:
        return JSONResponse(note.enqueue().refresh().status)

    routes = [Route("/note", post_note, methods=["POST"])]
    app = Starlette(routes=routes, lifespan=starlette.lifespan(forge, worker=False))
    for _ in range(2):
        with TestClient(app) as client:
            assert client.post("/note").json() == "pending"
    forge.drain().run()
    assert forge.jobs(status="done").count() == 2
    forge.close()


def test_its_own_lifespan_surrounds_the_worker(any_url: str) -> None:
    """Tasks need what it sets up until the last job has ended, and requests its state."""
    forge, log = Forge(any_url), list[str]()

    @asynccontextmanager
    async def own(app: Starlette) -> AsyncGenerator[dict[str, str]]:
        log.append("set up")
        yield {"pool": "a pool"}
        log.append("closed")

    @forge.task(queue="mail")
    async def slow() -> None:
        log.append("job began")
        try:
            await asyncio.Event().wait()
        finally:
            log.append("job ended")

    async def show(request: Request) -> Response:
        await slow.aenqueue()
        while "job began" not in log:
            await asyncio.sleep(0.01)
        return JSONResponse([request.state.pool, starlette.get_forge(request) is forge])

    run = starlette.lifespan(forge, queues=["mail"], app_lifespan=own, shutdown_timeout=0)
    app = Starlette(routes=[Route("/", show)], lifespan=run)
    with TestClient(app) as client:
        assert client.get("/").json() == ["a pool", True]
    assert log == ["set up", "job began", "job ended", "closed"]
    assert forge.jobs(status="pending").count() == 1
    assert asyncio.run(workers(forge)) == 0


def test_a_generator_function_will_do_as_its_own_lifespan() -> None:
    log: list[str] = []

    async def own(app: Starlette) -> AsyncGenerator[None]:
        log.append("set up")
        yield
        log.append("closed")

    forge = Forge("memory://")
    with TestClient(Starlette(lifespan=lifespan(forge, worker=False, app_lifespan=own))):
        assert log == ["set up"]
    assert log == ["set up", "closed"]


def test_a_start_that_fails_leaves_nothing_behind(any_url: str) -> None:
    forge, log = Forge(any_url), list[str]()

    @asynccontextmanager
    async def own(app: FastAPI) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            log.append("closed")

    app = FastAPI(lifespan=fastapi.lifespan(forge, queues=["not a name!"], app_lifespan=own))
    with pytest.raises(Exception, match="not a name!"), TestClient(app):
        raise AssertionError("it must not start")
    assert log == ["closed"]
    assert asyncio.run(workers(forge)) == 0


def test_overrides_reach_the_tasks_of_the_embedded_worker() -> None:
    forge = Forge("memory://")

    def get_sender() -> str:
        return "smtp"

    @forge.task(queue="mail")
    @inject
    def send(sender: Annotated[str, Depends(get_sender)]) -> str:
        return sender

    app = FastAPI(lifespan=fastapi.lifespan(forge))

    @app.post("/send")
    async def post_send() -> str:
        return await (await send.aenqueue()).aresult(timeout=20)

    app.dependency_overrides[get_sender] = lambda: "a list"
    with TestClient(app) as client:
        assert client.post("/send").json() == "a list"
        app.dependency_overrides.clear()
        assert client.post("/send").json() == "smtp"


def test_mission_control_behind_the_login_of_the_application(any_url: str) -> None:
    forge = Forge(any_url)

    def who(request: Request) -> Identity | Response:
        user = request.cookies.get("user")
        return Identity(user, Role.VIEWER) if user else RedirectResponse("/login", 303)

    app = fastapi_app(forge, queues=["mail"])
    app.mount("/ops", mission_control(forge, auth=who))
    for name in ("Ada", "Grace"):
        with TestClient(app, follow_redirects=False) as client:
            assert client.get("/ops/jobs").headers["location"] == "/login"
            client.cookies.set("user", "ada")
            client.post(f"/greet/{name}")
            page = client.get("/ops/jobs")
            assert page.status_code == 200
            assert "greet" in page.text
            assert client.get("/ops/").status_code == 200


def test_a_bulk_operation_of_a_mounted_mission_control_is_stopped(tmp_path: Path) -> None:
    """It would be torn down in the middle, and nobody would know how far it came."""
    forge = Forge(f"sqlite:///{tmp_path}/jobs.db")

    @forge.task
    def note(number: int) -> None: ...

    note.enqueue_many([(number,) for number in range(3_000)])
    panel = mission_control(forge, auth=lambda request: "admin")
    app = Starlette(routes=[Mount("/ops", panel)], lifespan=lifespan(forge, worker=False))
    with TestClient(app) as client:
        wish = {"action": "cancel", "filter": {"queues": ["default"]}}
        begun = client.post("/ops/api/bulk", json=wish).json()
        assert begun.get("state") == "running", begun
    assert panel.operations.get(begun["id"]).state in ("stopped", "done")


def test_two_applications_share_a_forge(any_url: str) -> None:
    """The one that ends first must not close what the other's worker uses."""
    forge = Forge(any_url)
    app = fastapi_app(forge, queues=["mail"])
    other = Starlette(lifespan=starlette.lifespan(forge, worker=False))
    with TestClient(app) as client:
        with TestClient(other):
            pass
        assert client.post("/greet/Ada").json() == "Hello, Ada!"


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(BadOption, match="takes a Forge, not FastAPI"):
        lifespan(FastAPI())  # pyright: ignore[reportArgumentType]

    app = fastapi_app(Forge("memory://"), worker=False)
    client = TestClient(app)
    with pytest.raises(Exception, match="lifespan=lifespan\\(forge\\)"):
        client.post("/greet/Ada")
