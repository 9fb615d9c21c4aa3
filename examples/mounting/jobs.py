"""The Forge object and the task that all four applications use."""

import os

from forge_jobs import Forge
from forge_jobs.web import Identity, Role

forge = Forge(os.environ.get("FORGE_URL", "sqlite:///forge.db"))


@forge.task(queue="mail")
def greet(name: str) -> str:
    return f"hello {name}"


def who(
    request,
) -> Identity | None:  # the application's own check: session, header, whatever it has
    """A request with the team's key has the role of an operator."""
    if request.headers.get("x-team-key") == os.environ.get("TEAM_KEY", "open sesame"):
        return Identity("team", Role.OPERATOR)
    return None
