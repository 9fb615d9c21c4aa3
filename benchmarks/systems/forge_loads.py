"""Jobs that take the careful paths of claim and finish. `--against` drains each of these loads.

A load seeds its jobs in the producer and registers its tasks in producer and worker. Nothing is
registered that a run does not use: a limited task changes how all jobs of its queue are claimed.
The parent asks a load how often handlers are called and which rows must be there before and after
the drain. Only public names of the package are used, and each in a function: the parent imports
this module without the package.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any

BATCH = 1_000
# Steps of a workflow, for every system.
STEPS = 20
# Jobs by state, their `attempts`, the dedupe `keys` that are taken and the stored `steps`.
Rows = dict[str, int]


class Load:
    """No-op jobs, one handler call each. The base of the others."""

    name = "noop"

    def register(self, app: Any) -> Any:
        """The task of this load, registered at the application's Forge."""
        return app.noop

    def seed(self, app: Any, jobs: int, **_: Any) -> dict[str, Any]:
        """Enqueue the jobs; what the worker has to know about them."""
        task = self.register(app)
        for first in range(0, jobs, BATCH):
            self.put(task, range(first, min(first + BATCH, jobs)))
        return {}

    def put(self, task: Any, numbers: range) -> None:
        """Enqueue the jobs with these numbers in one commit."""
        task.enqueue_many([()] * len(numbers))

    def calls(self, jobs: int) -> int:
        """How often handlers are called until the last job is finished."""
        return jobs

    def seeded(self, jobs: int) -> Rows:
        """The rows before the drain."""
        return {"pending": jobs}

    def ended(self, jobs: int) -> Rows:
        """The rows after the drain."""
        return {"done": jobs, "attempts": self.calls(jobs)}


class Keyed(Load):
    """Each job holds a dedupe key, and its end frees the key."""

    name = "keyed"

    def seed(self, app: Any, jobs: int, **options: Any) -> dict[str, Any]:
        import msgspec

        numbers = iter(range(jobs))

        # `enqueue_many` gives all jobs the same options; a hook can give each its own key.
        @app.forge.around_enqueue
        def give_key(job: Any) -> Generator[Any, Any, None]:
            yield msgspec.structs.replace(job, dedupe_key=f"key-{next(numbers)}")

        return super().seed(app, jobs, **options)

    def seeded(self, jobs: int) -> Rows:
        return {"pending": jobs, "keys": jobs}


class Failing(Load):
    """Every first attempt raises. Half of the jobs die of it; the others are retried without a
    delay and succeed."""

    name = "failing"

    def register(self, app: Any) -> Any:
        from forge_jobs import Context, Retry

        # The engine logs every failure. Writing these lines is not what is measured.
        logging.getLogger("forge_jobs").setLevel(logging.CRITICAL)

        @app.forge.task(kind="failing", queue=app.QUEUE, retry=Retry(delays=[0]))
        async def failing(ctx: Context) -> None:
            app.TALLY.count()
            if ctx.job.attempts == 1:
                raise RuntimeError("the first attempt fails")

        return failing

    def put(self, task: Any, numbers: range) -> None:
        half = len(numbers) // 2
        task.using(max_attempts=1).enqueue_many([()] * half)
        task.using(max_attempts=2).enqueue_many([()] * (len(numbers) - half))

    def calls(self, jobs: int) -> int:
        return 2 * jobs - self._dead(jobs)

    def ended(self, jobs: int) -> Rows:
        dead = self._dead(jobs)
        return {"done": jobs - dead, "dead": dead, "attempts": self.calls(jobs)}

    def _dead(self, jobs: int) -> int:
        return jobs // BATCH * (BATCH // 2) + jobs % BATCH // 2


class Limited(Load):
    """Few jobs of each limit key may run at once, so most are held and each end lets one in."""

    name = "limited"
    keys = 300
    at_once = 2

    def register(self, app: Any) -> Any:
        @app.forge.task(
            kind="limited", queue=app.QUEUE, concurrency=self.at_once, per="args.customer"
        )
        async def limited(customer: int) -> None:
            app.TALLY.count()

        return limited

    def put(self, task: Any, numbers: range) -> None:
        task.enqueue_many([(number % self.keys,) for number in numbers])

    def seeded(self, jobs: int) -> Rows:
        room = min(jobs, self.keys * self.at_once)
        return {"pending": room, "held": jobs - room}


class Due(Load):
    """All jobs are scheduled for the same moment, at which the clock starts."""

    name = "due"

    def seed(self, app: Any, jobs: int, **options: Any) -> dict[str, Any]:
        """`lead`: seconds from now to the moment at which the jobs are due."""
        due = time.time() + options["lead"]
        task = self.register(app).using(run_at=datetime.fromtimestamp(due, UTC))
        for first in range(0, jobs, BATCH):
            self.put(task, range(first, min(first + BATCH, jobs)))
        return {"due": due}

    def seeded(self, jobs: int) -> Rows:
        return {"scheduled": jobs}


class Steps(Load):
    """Each job takes durable steps that do nothing, one after the other. A call is a step."""

    name = "steps"

    def register(self, app: Any) -> Any:
        from forge_jobs import Context

        async def step() -> None:
            app.TALLY.count()

        @app.forge.task(kind="steps", queue=app.QUEUE)
        async def steps(ctx: Context) -> None:
            for _ in range(STEPS):
                await ctx.step("step", step)

        return steps

    def calls(self, jobs: int) -> int:
        return jobs * STEPS

    def ended(self, jobs: int) -> Rows:
        return {"done": jobs, "attempts": jobs, "steps": self.calls(jobs)}


LOADS: dict[str, Load] = {
    load.name: load for load in (Keyed(), Failing(), Limited(), Due(), Steps())
}
