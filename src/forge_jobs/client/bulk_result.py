"""What an action on many jobs did."""

from msgspec import Struct


class BulkResult(Struct, frozen=True, kw_only=True):
    """How many jobs an action of ``forge.jobs(...)`` reached, by what it did to them.

    ``changed``: it was applied. ``requested``: they run, and were asked to stop. ``refused``: it
    was not applied; ``reasons`` says why, by text. Jobs that the action never applies to are not
    selected at all, so a refused job changed its state meanwhile or has a dedupe key that another
    live job holds.

    >>> job = send.using(delay="1h").enqueue("a@b.c")
    >>> forge.jobs(kind="send", status="scheduled").cancel().changed
    1
    """

    action: str
    changed: int = 0
    requested: int = 0
    refused: int = 0
    reasons: dict[str, int] = {}

    def __str__(self) -> str:
        parts = [f"{self.changed} changed"]
        if self.requested:
            parts.append(f"{self.requested} asked to stop")
        parts += [f"{count} refused: {reason}" for reason, count in self.reasons.items()]
        return f"{self.action}: {', '.join(parts)}"
