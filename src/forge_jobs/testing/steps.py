"""Steps in users' tests: what is stored of a job, and events for plain calls."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from forge_jobs.client.job import Job
from forge_jobs.core.new_event import new_event
from forge_jobs.engine.steps.local_steps import given_events


def steps_of(job: Job[Any]) -> dict[str, Any]:
    """The stored values of a job by the name of their step, in the order in which they began:
    ``assert steps_of(job)["charge"] == {"id": "ch_1"}``. ``job.steps()`` has their times too.

    >>> @forge.task
    ... async def import_file(path: str, ctx: Context) -> int:
    ...     return await ctx.step("count", len, path)
    >>> job = import_file.enqueue("a.csv")
    >>> report = forge.drain().run()
    >>> testing.steps_of(job)
    {'count': 5}
    """
    return {step.name: step.value for step in job.steps()}


@contextmanager
def events(*given: tuple[Any, ...]) -> Generator[None, None, None]:
    """Within this block plain calls of tasks find these events as sent, each once and in order.

    Each is a name with a payload, and a key if the wait has one:

    >>> @forge.task
    ... async def fulfil(order: int, ctx: Context) -> int:
    ...     paid = await ctx.wait_for("paid", key=order)
    ...     return paid["cents"]
    >>> with testing.events(("paid", {"cents": 5}, 7)):
    ...     asyncio.run(fulfil(7))
    5
    """
    made = [
        new_event(name, *rest[:1], key=rest[1] if len(rest) > 1 else None)
        for name, *rest in given
    ]  # fmt: skip
    token = given_events.set(made)
    try:
        yield
    finally:
        given_events.reset(token)
