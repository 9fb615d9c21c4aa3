"""How a queue's cluster-wide slots are shared out among the worker processes that serve it.

A part has two numbers. ``slots`` is what its process may use from now on; ``held`` is what is kept
from everybody else for its sake. Sharing out may lower ``slots`` at once, but ``held`` only falls
when the process itself says that it gave something up and does not run it any more. What nobody
holds may be granted, so that the cluster never runs more than the total, however late or silent a
process is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Part:
    """What one process has of a queue. ``wants``: it is alive, serves the queue and may claim."""

    process: int
    host_id: str
    wants: bool
    slots: int = 0
    held: int = 0


def split(total: int, hosts: Sequence[str]) -> dict[str, int]:
    """Equal parts, the remainder to the first hosts in order of their names.

    >>> split(10, ["a", "b", "c"])
    {'a': 4, 'b': 3, 'c': 3}
    """
    if not hosts:
        return {}
    part, rest = divmod(max(total, 0), len(hosts))
    return {host: part + (place < rest) for place, host in enumerate(sorted(hosts))}


def share_out(total: int, parts: Sequence[Part], *, max_slots: int) -> list[Part]:
    """The parts whose ``slots`` change, as they are afterwards.

    Every process that wants gets its fair share of ``total``, at most ``max_slots``. A part that
    grows beyond what it holds takes from what nobody holds, those with the first names first.
    """
    fair = split(total, [part.host_id for part in parts if part.wants])
    free = total - sum(part.held for part in parts)
    changed: list[Part] = []
    for part in sorted(parts, key=lambda part: part.host_id):
        slots = min(fair[part.host_id], max_slots) if part.wants else 0
        if slots > part.held:
            grown = min(slots - part.held, max(free, 0))
            free -= grown
            slots = part.held + grown
        if slots != part.slots:
            changed.append(replace(part, slots=slots, held=max(part.held, slots)))
    return changed
