"""A program for the tests of cmd_exec: writes its process ids to FILE and behaves as ACT says.

Usage: ``command_program.py ACT FILE``. It runs for at most a minute, so that a failing test does
not leave it behind for long.
"""

import os
import signal
import sys
import time

SECONDS = 60.0


def write_pid(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, b"%d\n" % os.getpid())
    os.close(descriptor)


def daemon(path: str, *, ignores_sigterm: bool) -> None:
    """Double fork into a session of its own, as daemons do."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    if ignores_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write_pid(path)
    time.sleep(SECONDS)
    os._exit(0)


def family(path: str) -> None:
    for _ in range(2):
        if os.fork() == 0:
            if os.fork() == 0:
                write_pid(path)
                time.sleep(SECONDS)
                os._exit(0)
            write_pid(path)
            time.sleep(SECONDS)
            os._exit(0)


def main() -> None:
    act, path = sys.argv[1:3]
    match act:
        case "quick":
            pass
        case "daemon":
            daemon(path, ignores_sigterm=True)
        case "daemon-and-wait":
            daemon(path, ignores_sigterm=True)
            write_pid(path)
            time.sleep(SECONDS)
        case "family":
            family(path)
            write_pid(path)
            time.sleep(SECONDS)
        case "ignores-sigterm":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            write_pid(path)
            time.sleep(SECONDS)
        case "exits-on-sigterm":
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit("goodbye"))
            print("hello", flush=True)
            write_pid(path)
            time.sleep(SECONDS)
        case "endless":
            write_pid(path)
            block = b"y" * 65_536
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                os.write(1, block)
                os.write(2, block)
        case _:
            raise ValueError(act)


if __name__ == "__main__":
    main()
