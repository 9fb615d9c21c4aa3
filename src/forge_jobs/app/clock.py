"""The clock of a Forge: the system's, unless a test replaces it."""

from forge_jobs.kit.clock import Clock


class ForgeClock:
    """A clock whose source can be replaced while others hold a reference to it.

    It takes over the bound methods of its source, so that reading the time costs no extra call.
    """

    __slots__ = ("mono", "now", "pause", "sleep", "source")

    def __init__(self, source: Clock) -> None:
        self.follow(source)

    def follow(self, source: Clock) -> None:
        """Use ``source`` from now on."""
        self.source = source
        self.now = source.now
        self.mono = source.mono
        self.sleep = source.sleep
        self.pause = source.pause
