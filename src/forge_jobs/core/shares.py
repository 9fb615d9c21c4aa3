"""How a queue's cluster-wide slots are shared out among the worker processes that serve it."""

from collections.abc import Sequence


def split(total: int, hosts: Sequence[str]) -> dict[str, int]:
    """Equal parts, the remainder to the first hosts in order of their names.

    >>> split(10, ["a", "b", "c"])
    {'a': 4, 'b': 3, 'c': 3}
    """
    if not hosts:
        return {}
    part, rest = divmod(max(total, 0), len(hosts))
    return {host: part + (place < rest) for place, host in enumerate(sorted(hosts))}
