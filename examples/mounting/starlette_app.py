"""Mission Control inside Starlette. Run: uvicorn --app-dir examples/mounting starlette_app:app"""

from jobs import forge, greet, who
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from forge_jobs.web import mission_control


async def order(request: Request) -> JSONResponse:
    return JSONResponse({"job": (await greet.aenqueue(request.path_params["name"])).id})


app = Starlette(
    routes=[
        Route("/greet/{name}", order, methods=["POST"]),
        Mount("/ops/jobs", mission_control(forge, auth=who)),
    ]
)
