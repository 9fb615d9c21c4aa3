"""The Forge object and the task that all four applications use."""

import os

from starlette.requests import Request

from forge_jobs import Forge
from forge_jobs.web import Identity, Role

forge = Forge()  # the address in FORGE_URL, else the file forge.db


@forge.task(queue="mail")
def greet(name: str) -> str:
    return f"hello {name}"


def who(request: Request) -> Identity | None:
    """The application's own check. A request with the team's key has the role of an operator."""
    if request.headers.get("x-team-key") == os.environ.get("TEAM_KEY", "open sesame"):
        return Identity("team", Role.OPERATOR)
    return None
