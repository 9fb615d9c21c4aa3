"""How many slots of a queue this process may use."""

from collections.abc import Iterable

from forge_jobs.core.shares import split
from forge_jobs.store.processes import ProcessRecord


def granted(
    total: int, queue: str, host_id: str, processes: Iterable[ProcessRecord], *, most: int
) -> int:
    """The local share of a cluster-wide number of slots.

    Others that serve the queue count by what they have acknowledged: a share is only taken once
    somebody has given it up. Processes told to be quiet get no share but keep what still runs.
    """
    others = [record for record in processes if record.host_id != host_id]
    sharers = [record.host_id for record in others if queue in record.queues and not record.quiet]
    taken = sum(record.slots.get(queue, 0) for record in others)
    share = split(total, [host_id, *sharers])[host_id]
    return max(0, min(share, total - taken, most))
