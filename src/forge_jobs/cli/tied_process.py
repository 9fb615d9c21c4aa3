"""``TiedProcess``: a ``forge worker`` that drains when the command that started it ends.

Used by ``forge dev`` and ``forge demo``. It runs in a session of its own, so that Ctrl-C reaches
only the command. The command holds the write end of its standard input; at end of file the worker
drains, however the command ended.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Final

_KILL_AFTER_S: Final = 3.0


class TiedProcess:
    """A ``forge worker`` as a child process. ``stop`` drains it, and kills it after a timeout."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        output: IO[bytes] | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "forge_jobs.cli.tied_process", *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()

    def stop(self, grace_s: float) -> int:
        """Drain: running jobs have ``grace_s`` to end. Returns the exit code."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            return self._process.wait(grace_s + _KILL_AFTER_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            return self.kill()

    def kill(self) -> int:
        """Kill it and its workers; the exit code."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()


def main() -> None:
    """Run the worker, with a thread that waits for end of file on standard input."""
    from .worker import worker

    threading.Thread(target=_stop_at_eof, name="forge-stdin", daemon=True).start()
    sys.exit(worker(sys.argv[1:]))


def _stop_at_eof() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
