"""Drops the engine's log line about a failed job that the gateway has logged itself.

The engine names kind and job; the gateway's own line names bot, chat and update, too. Everything
that the gateway does not log (a crash, a kind without a handler) is logged by the engine as always.
"""

import logging
from collections import OrderedDict
from typing import Final

_ENGINE: Final = "forge_jobs."
_MAX_JOBS: Final = 10_000


class ReportedJobs(logging.Filter):
    """A filter for log handlers, and the ids of the jobs whose failure was logged."""

    def __init__(self) -> None:
        super().__init__()
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, job_id: str) -> None:
        """The failure of this job was logged: drop the engine's next line about it."""
        self._ids[job_id] = None
        while len(self._ids) > _MAX_JOBS:
            self._ids.popitem(last=False)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or not record.name.startswith(_ENGINE):
            return True
        job_id = getattr(record, "job_id", None)
        if job_id not in self._ids or getattr(record, "error", None) is None:
            return True
        del self._ids[job_id]
        return False
