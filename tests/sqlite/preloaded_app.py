"""A WSGI application that a preloading server imports once, before it forks its workers.

It has stored a job by then, so that its connection is open when the server forks. Each request
stores a job and answers its id.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any

from forge_jobs import Forge

forge = Forge(os.environ["FORGE_URL"])


@forge.task
def work(n: int) -> None: ...


FIRST = work.enqueue(0).id


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    job = work.enqueue(1)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {job.id} {FIRST}".encode()]
