"""Mission Control inside Litestar. Run: uvicorn --app-dir examples/mounting litestar_app:app"""

from jobs import forge, greet, who
from litestar import Litestar, asgi, post
from litestar.types import Receive, Scope, Send

from forge_jobs.web import mission_control

panel = mission_control(forge, auth=who, root="/ops/jobs")


@asgi("/ops/jobs", is_mount=True, copy_scope=True)
async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
    await panel(scope, receive, send)


@post("/greet/{name:str}", status_code=200)
async def order(name: str) -> dict[str, str]:
    return {"job": (await greet.aenqueue(name)).id}


app = Litestar([mounted, order])
