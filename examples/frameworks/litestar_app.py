"""Litestar: a worker in the application, the Forge as a dependency, Mission Control at /ops/jobs.
Run: uvicorn --app-dir examples/frameworks litestar_app:app
Then: curl -X POST localhost:8000/greet/ada, and open http://localhost:8000/ops/jobs/
"""

from litestar import Litestar, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from forge_jobs import Forge
from forge_jobs.integrations.litestar import ForgePlugin

forge = Forge()  # the address in FORGE_URL, else the file forge.db


@forge.task(queue="mail")
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@post("/greet/{name:str}")
async def post_greet(name: FromPath[str], forge: NamedDependency[Forge]) -> str:
    job = await forge.aenqueue("greet", {"name": name})
    return await job.aresult(timeout=5)


# Without auth= the pages answer only this machine.
app = Litestar(
    [post_greet], plugins=[ForgePlugin(forge, queues=["mail:4"], mission_control="/ops/jobs")]
)
