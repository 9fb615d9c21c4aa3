"""Signal dispositions: tests and their children start with the usual ones, however the run began.

``nohup`` ignores SIGHUP, and a shell that starts a command in the background ignores SIGINT and
SIGQUIT. Ignored signals are inherited, so that a child would never see the signal a test sends.
"""

import signal
from types import FrameType

_HANGUPS = (signal.SIGHUP, signal.SIGQUIT)


def restore() -> None:
    """Undo inherited ignoring. A handler that does nothing keeps this process alive as before, and
    exec resets it to the default in children."""
    for number in _HANGUPS:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, _nothing)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass
