"""The application of the rate storm: handlers that acquire permits as fast as they can."""

import asyncio
import os
import time
from pathlib import Path

from forge_jobs import Context, Forge
from rigs.storms.history import History

SCOPE = "storm"

forge = Forge(os.environ["STORM_URL"])


@forge.task(queue="asking")
async def ask(seconds: float, ctx: Context) -> None:
    """Record the time of each permit."""
    history = History(Path(os.environ["STORM_FOLDER"]) / f"asker-{os.getpid()}.jsonl")
    end = time.monotonic() + 3 * seconds
    while time.monotonic() < end:
        outcome = await ctx.rate_limit.try_acquire(SCOPE)
        if outcome:
            history.write("granted")
        else:
            await asyncio.sleep(min(outcome.retry_after, 0.05))
