"""A worker inside a web application, for small sites: one process does both.
Run: uvicorn --app-dir examples lifespan:app
Then: curl -X POST localhost:8000/greet/ada, and curl localhost:8000/jobs/ID
"""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from forge_jobs import Forge, NotFound
from forge_jobs.integrations.starlette import lifespan

forge = Forge()


@forge.task(queue="mail")
async def greet(name: str) -> str:
    return f"Hello, {name}!"


async def enqueue(request: Request) -> JSONResponse:
    job = await greet.aenqueue(request.path_params["name"])
    return JSONResponse({"job": job.id}, status_code=202)


async def show(request: Request) -> JSONResponse:
    try:
        job = await forge.job(request.path_params["id"]).arefresh()
    except NotFound:
        return JSONResponse({"error": "no such job"}, status_code=404)
    result = await job.aresult() if job.status == "done" else None
    return JSONResponse({"status": job.status, "result": result})


routes = [Route("/greet/{name}", enqueue, methods=["POST"]), Route("/jobs/{id}", show)]
# At shutdown running jobs may finish; the others go back to the queue.
app = Starlette(routes=routes, lifespan=lifespan(forge, queues=["mail"]))
