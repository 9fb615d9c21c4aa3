"""What others than Telegram ask the gateway: health, metrics and the admin pages."""

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
    """Everything but the door."""

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        found = await checks()
        lines = "".join(f"{'ok' if good else 'FAILED'} {name}\n" for name, good in found)
        return PlainTextResponse(lines, 200 if all(good for _, good in found) else 503)

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
