"""The application of the container and of the manifests. FORGE_URL says where its jobs are."""

import logging

from forge_jobs import Forge

log = logging.getLogger("shop")
forge = Forge()


@forge.task(queue="mail", max_attempts=5, timeout="30s")
async def send(to: str, subject: str = "hello") -> str:
    log.info("sending %r to %s", subject, to)
    return f"sent to {to}"
