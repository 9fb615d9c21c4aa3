"""Signal handlers of the worker parent: they only count signals; the parent's loop reacts."""

import os
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final

TERMINAL_SIGNALS: Final = (signal.SIGINT, signal.SIGHUP)


@dataclass(slots=True)
class SignalCounts:
    """How many signals have requested a stop or a rolling restart."""

    stops: int = 0
    restarts: int = 0


@contextmanager
def count_signals(counts: SignalCounts, wake: socket.socket) -> Generator[None]:
    """Install handlers that count signals; Python writes a byte to ``wake`` for each signal."""

    def stop(number: int, frame: FrameType | None) -> None:
        counts.stops += 1

    def restart(number: int, frame: FrameType | None) -> None:
        counts.restarts += 1

    def child_exited(number: int, frame: FrameType | None) -> None:
        # Needed only for the byte that Python writes to the wake-up descriptor.
        pass

    handlers = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGCHLD: child_exited}
    # SIGHUP: a closed terminal stops the parent; without a terminal it requests a rolling restart.
    # A process that was started with SIGHUP ignored (nohup) keeps ignoring it.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handlers[signal.SIGHUP] = stop if os.isatty(0) else restart
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    previous_wake = signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous_wake)
        for number, handler in previous.items():
            signal.signal(number, handler)


def reap_orphans(workers: set[int]) -> None:
    """As process 1 of a container, reap the orphans that the kernel hands to it."""
    if os.getpid() != 1 or not hasattr(os, "waitid"):
        return
    with suppress(ChildProcessError):
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid in workers:
                return
            os.waitpid(found.si_pid, 0)
