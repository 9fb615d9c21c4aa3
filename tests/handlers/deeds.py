"""A program for the tests of cmd_exec: writes its process ids down and behaves as it is told.

``deeds.py ACT FILE``; stays under a minute whatever happens, so that a failing test does not leave
it behind for long.
"""

import os
import signal
import sys
import time

SECONDS = 60.0


def note(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, b"%d\n" % os.getpid())
    os.close(descriptor)


def daemon(path: str, *, deaf: bool) -> None:
    """Forks twice into a session of its own, as programs do that want to outlive their caller."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(path)
    time.sleep(SECONDS)
    os._exit(0)


def family(path: str) -> None:
    for _ in range(2):
        if os.fork() == 0:
            if os.fork() == 0:
                note(path)
                time.sleep(SECONDS)
                os._exit(0)
            note(path)
            time.sleep(SECONDS)
            os._exit(0)


def main() -> None:
    act, path = sys.argv[1:3]
    match act:
        case "quick":
            pass
        case "daemon":
            daemon(path, deaf=True)
        case "daemon-and-wait":
            daemon(path, deaf=True)
            note(path)
            time.sleep(SECONDS)
        case "family":
            family(path)
            note(path)
            time.sleep(SECONDS)
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            note(path)
            time.sleep(SECONDS)
        case "polite":
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit("goodbye"))
            print("hello", flush=True)
            note(path)
            time.sleep(SECONDS)
        case "endless":
            note(path)
            block = b"y" * 65_536
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                os.write(1, block)
                os.write(2, block)
        case _:
            raise ValueError(act)


if __name__ == "__main__":
    main()
