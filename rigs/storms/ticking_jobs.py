"""The application of the cron storm: a schedule every second, whose runs are recorded."""

import os
from pathlib import Path

from forge_jobs import Context, Forge
from rigs.storms.history import History

NAME = "second"
QUEUE = "ticking"

forge = Forge(os.environ["STORM_URL"])


@forge.cron("* * * * * *", name=NAME, missed="all", missed_limit=1_000)
@forge.task(queue=QUEUE, max_attempts=100)
async def tick(ctx: Context) -> None:
    """Record the tick of this run."""
    path = Path(os.environ["STORM_FOLDER"]) / f"ticker-{os.getpid()}.jsonl"
    History(path).write("ran", job=ctx.job.id, tick=ctx.job.tags[-1].removeprefix("tick:"))
