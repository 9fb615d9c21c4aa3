"""The table of error groups of a row-wise store."""

from collections.abc import Iterable, Sequence

from forge_jobs.backends.shared.error_groups import Worker
from forge_jobs.core.error_groups import ErrorGroup

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
        return len(self._groups)


def worker_of(tables: Tables, owner: int) -> Worker:
    """The label and the version of a process."""
    process = tables.processes.get(owner)
    if process is None:
        return Worker()
    return Worker(process.registration.label, process.registration.version)
