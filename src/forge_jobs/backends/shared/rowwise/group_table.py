"""The table of error groups of a row-wise store."""

from collections.abc import Iterable, Sequence

from forge_jobs.backends.shared.error_groups import Worker
from forge_jobs.core.error_groups import OTHER, ErrorGroup
from forge_jobs.core.instant import Instant

from .tables import Tables


class RowGroupTable:
    """``GroupTable`` over the tables of a row-wise store."""

    def __init__(self, tables: Tables) -> None:
        self._groups = tables.error_groups

    def load(self, ids: Iterable[str]) -> dict[str, ErrorGroup]:
        found = {group_id: self._groups.get(group_id) for group_id in ids}
        return {group_id: group for group_id, group in found.items() if group is not None}

    def put(self, groups: Sequence[ErrorGroup]) -> None:
        for group in groups:
            self._groups[group.id] = group

    def size(self) -> int:
        return len(self._groups) - (OTHER in self._groups)

    def purge(self, before: Instant, limit: int) -> int:
        old = [group for group in self._groups.values() if group.last_at < before]
        old.sort(key=lambda group: (group.last_at, group.id))
        for group in old[: max(limit, 0)]:
            del self._groups[group.id]
        return min(len(old), max(limit, 0))


def worker_of(tables: Tables, owner: int) -> Worker:
    """The label and the version of a process."""
    process = tables.processes.get(owner)
    if process is None:
        return Worker()
    return Worker(process.registration.label, process.registration.version)
