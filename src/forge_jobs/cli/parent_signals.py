"""Signals as the worker parent takes them: counted, and answered in its own good time."""

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
class Wishes:
    """What signals asked for so far."""

    stops: int = 0
    rolls: int = 0


@contextmanager
def signals_to(wishes: Wishes, wake: socket.socket) -> Generator[None]:
    """Count signals for as long as this lasts, and write to ``wake`` for each."""

    def stop(number: int, frame: FrameType | None) -> None:
        wishes.stops += 1

    def roll(number: int, frame: FrameType | None) -> None:
        wishes.rolls += 1

    def child(number: int, frame: FrameType | None) -> None:
        # Its only purpose is the byte that Python writes to the wake-up descriptor.
        pass

    wanted = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGCHLD: child}
    # A closed terminal ends the parent; without one SIGHUP asks for a rolling restart. Ignored
    # from the start (nohup) stays ignored.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        wanted[signal.SIGHUP] = stop if os.isatty(0) else roll
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    woken = signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, handler)


def reap_strays(ours: set[int]) -> None:
    """As the first process of a container, bury the orphans that everybody leaves to it."""
    if os.getpid() != 1 or not hasattr(os, "waitid"):
        return
    with suppress(ChildProcessError):
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid in ours:
                return
            os.waitpid(found.si_pid, 0)
