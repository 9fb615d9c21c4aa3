"""Routes besides the webhook: health, readiness, metrics and the admin pages."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

Check: TypeAlias = Callable[[], Awaitable[list[tuple[str, bool]]]]


def pages(
    checks: Check, metrics: Callable[[], Awaitable[str]], admin: ASGIApp | None = None
) -> Starlette:
    """The application for every path but the webhook's."""

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        results = await checks()
        lines = "".join(f"{'ok' if passed else 'FAILED'} {name}\n" for name, passed in results)
        return PlainTextResponse(lines, 200 if all(passed for _, passed in results) else 503)

    async def page(request: Request) -> Response:
        return PlainTextResponse(await metrics(), media_type="text/plain; version=0.0.4")

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", page),
            *([] if admin is None else [Mount("/admin", admin)]),
        ]
    )
