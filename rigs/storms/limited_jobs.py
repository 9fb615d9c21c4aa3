"""The application of the limit storms: handlers that record when they start and end."""

import asyncio
import os
from pathlib import Path

from forge_jobs import Context, Forge, Retry, Throttled
from rigs.storms.history import History

ATTEMPTS = 1_000
RATE = 100
QUEUES = "keyed:40,rated:20,lined:40"

forge = Forge(os.environ["STORM_URL"])
_history: list[History] = []


def note(op: str, **fields: object) -> None:
    if not _history:
        _history.append(History(Path(os.environ["STORM_FOLDER"]) / f"runner-{os.getpid()}.jsonl"))
    _history[0].write(op, **fields)


@forge.task(queue="keyed", max_attempts=ATTEMPTS, concurrency=1, per="args.key")
async def keyed(key: str, ms: float) -> None:
    note("start", sort="keyed", group=key)
    await asyncio.sleep(ms / 1000)
    note("end", sort="keyed", group=key)


@forge.task(queue="rated", max_attempts=ATTEMPTS, rate=f"{RATE}/s")
async def rated() -> None:
    note("start", sort="rated", group="")
    note("end", sort="rated", group="")


@forge.task(queue="lined", max_attempts=ATTEMPTS, retry=Retry(base="50ms", max="200ms"))
async def lined(lane: str, position: int, ms: float, failures: int) -> None:
    """Fails ``failures`` times; the count so far is the size of a file."""
    failures_file = Path(os.environ["STORM_FOLDER"]) / f"fails-{lane}-{position}"
    failed = failures_file.stat().st_size if failures_file.exists() else 0
    note("start", sort="lined", group=lane, position=position)
    await asyncio.sleep(ms / 1000)
    note("end", sort="lined", group=lane, position=position)
    if failed < failures:
        with failures_file.open("ab") as file:
            file.write(b"x")
        raise RuntimeError("once more")


@forge.task(queue="keyed", max_attempts=ATTEMPTS, concurrency=1, per="args.key")
async def parked(key: str, sent_at: float, seconds: float = 0.0) -> None:
    """For the waiting storm: records when it started."""
    note("start", sort="parked", group=key, sent_at=sent_at)
    await asyncio.sleep(seconds)


@forge.task(queue="told", scopes=["told"])
async def refused(seconds: float, ctx: Context) -> None:
    """Throttles its scope once."""
    if ctx.job.attempts == 1 and not _refused:
        _refused.append(True)
        note("refused")
        raise Throttled(retry_after=seconds, scope="told")


@forge.task(queue="told", scopes=["told"])
async def minded() -> None:
    note("minded")


@forge.task(queue="told")
async def unminded() -> None:
    note("unminded")


_refused: list[bool] = []
