"""A worker that ends when whoever started it ends: the other half of ``forge dev`` and ``demo``.

It runs in a session of its own, so that Ctrl-C reaches only the command that owns it; its standard
input is the tether. When that closes, for whatever reason, the worker drains.
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
    """A ``forge worker`` as a child; ``stop`` drains it, and kills it if that does not help."""

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
    def ended(self) -> int | None:
        """The exit code, once it has ended."""
        return self._process.poll()

    def stop(self, grace_s: float) -> int:
        """Let running jobs end for that long; the exit code."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            return self._process.wait(grace_s + _KILL_AFTER_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            return self.kill()

    def kill(self) -> int:
        """End it and its workers at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()


def main() -> None:
    """Run the worker, with a thread that watches the tether."""
    from .worker import worker

    threading.Thread(target=_watch, name="forge-tether", daemon=True).start()
    sys.exit(worker(sys.argv[1:]))


def _watch() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
