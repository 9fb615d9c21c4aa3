"""The application of the alert storm: it looks at its rules often, and has no task that matters."""

import os

from forge_jobs import EngineSettings, Forge

QUEUE = "served"

forge = Forge(os.environ["STORM_URL"], settings=EngineSettings(alert_s=0.2))


@forge.task(queue=QUEUE)
async def nothing() -> None:
    """A worker wants a task."""
