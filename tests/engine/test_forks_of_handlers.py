"""A handler may fork while another one uses a thread pool for the first time."""

import subprocess
import sys
import textwrap


def test_a_worker_has_the_fork_hooks_of_thread_pools_before_a_handler_can_fork() -> None:
    """``concurrent.futures.thread`` registers hooks that take and release its lock. Imported by one
    thread while another forks, only the release runs: "release unlocked lock" in a handler."""
    script = """
        import asyncio, sys
        from forge_jobs import Forge

        forge = Forge("memory://")

        @forge.task
        async def job() -> bool:
            return "concurrent.futures.thread" in sys.modules

        async def main() -> None:
            async with forge.worker():
                print(await (await job.aenqueue()).aresult(timeout=30))

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "True\n"
