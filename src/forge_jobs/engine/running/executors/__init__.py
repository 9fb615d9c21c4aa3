"""Where handlers run: the event loop, our own threads, child processes.

An executor is given a run that has already been counted against its queue's slots, runs the
handler to its end, and reports exactly one ending. It never retries, never talks to the store and
never decides what an ending means.
"""

from typing import Protocol

from forge_jobs.engine.running.run import Run


class Executor(Protocol):
    """Runs handlers somewhere. All methods are called on the job loop and never block it.

    An executor is built with ``ended(run, ending)``, to be called on the job loop.
    """

    def submit(self, run: Run) -> None:
        """Run this handler. Exactly one ``ended(run, ending)`` follows, when the handler has
        really ended; until then the job stays running, whatever was asked of it."""
        ...

    def interrupt(self, run: Run) -> None:
        """``run.stop`` was just set: end the handler as hard as this place allows (cancel the
        coroutine, kill the child; a thread only sees ``ctx.cancelled``). The ending may say
        anything: the engine words it after ``run.stop``. May come twice; no effect on a run that
        has ended."""
        ...

    async def close(self) -> None:
        """The process stops: let go of threads, kill children. Runs still going on are no longer
        reported."""
        ...
