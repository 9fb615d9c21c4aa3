"""Distributes a queue's cluster-wide slots among the worker processes that serve it.

A share has two numbers. ``slots`` is what its process may use from now on. ``held`` is what no
other process may be granted. A distribution may lower ``slots`` at once, but ``held`` falls only
when the process itself reports that it no longer runs as many jobs. Only slots that no process
holds are granted, so that the cluster never runs more than the total, however late or silent a
process is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Part:
    """The share of one process. ``wants``: it is alive, serves the queue and may claim."""

    process: int
    host_id: str
    wants: bool
    slots: int = 0
    held: int = 0


def split(total: int, hosts: Sequence[str]) -> dict[str, int]:
    """Equal shares; the remainder goes to the first hosts by name.

    >>> split(10, ["a", "b", "c"])
    {'a': 4, 'b': 3, 'c': 3}
    """
    if not hosts:
        return {}
    part, rest = divmod(max(total, 0), len(hosts))
    return {host: part + (index < rest) for index, host in enumerate(sorted(hosts))}


def share_out(total: int, parts: Sequence[Part], *, max_slots: int) -> list[Part]:
    """The shares whose ``slots`` change, as they are afterwards.

    Every process that wants slots gets its fair share of ``total``, at most ``max_slots``. A share
    that grows beyond what it holds takes from the slots that no process holds, first names first.
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
