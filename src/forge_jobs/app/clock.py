"""A Forge's own clock: the system's, unless a test puts another one in its place."""

from forge_jobs.kit.clock import Clock


class ForgeClock:
    """Passes every question on to the clock that is in place at that moment.

    The methods of the other clock are taken over as they are, so that a reading costs no extra
    call.
    """

    __slots__ = ("mono", "now", "pause", "sleep", "source")

    def __init__(self, source: Clock) -> None:
        self.follow(source)

    def follow(self, source: Clock) -> None:
        """From now on, tell the time of ``source``."""
        self.source = source
        self.now = source.now
        self.mono = source.mono
        self.sleep = source.sleep
        self.pause = source.pause
