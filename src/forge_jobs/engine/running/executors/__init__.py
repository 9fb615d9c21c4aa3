"""Where handlers run: the event loop, our own threads, child processes.

An executor gets a run whose slot is already taken, runs the handler to its end, and reports exactly
one outcome. It never retries, never calls the store and never decides what an outcome means.
"""

from typing import Protocol

from forge_jobs.engine.running.run import Run


class Executor(Protocol):
    """Runs handlers somewhere. All methods are called on the job loop and never block it.

    An executor is built with ``on_finish(run, outcome)``, which it calls on the job loop.
    """

    def submit(self, run: Run) -> None:
        """Run this handler. Exactly one ``on_finish(run, outcome)`` follows, when the handler has
        really ended; until then the job stays running, even after ``interrupt``."""
        ...

    def interrupt(self, run: Run) -> None:
        """``run.stop`` was just set: end the handler as hard as this executor can (cancel the
        coroutine, kill the child; a thread only sees ``ctx.cancelled``). The reported outcome may
        be anything: the engine replaces it according to ``run.stop``. May be called twice; no
        effect on a run that has ended."""
        ...

    async def close(self) -> None:
        """The process stops: end idle threads, kill children. Runs that still run are no longer
        reported."""
        ...
