"""Reads the stored steps of jobs; the exchange stores them."""

from collections.abc import Awaitable, Callable, Sequence

from forge_jobs.core.steps import StepKind, StepRecord

from . import sql_files
from .connection.driver import Row
from .connection.server import Server
from .queries import Queries


class PostgresSteps:
    """Histories of jobs; see ``forge_jobs.store.steps`` for what each method promises.
    ``retry_from`` deletes steps of the job with that id and retries it."""

    def __init__(
        self,
        server: Server,
        queries: Queries,
        retry_from: Callable[[str, str], Awaitable[bool]],
    ) -> None:
        self._server = server
        self._queries = queries
        self._retry_from = retry_from
        self._sql = sql_files.statements("steps", server.address.schema)

    async def page(
        self,
        job_id: str,
        *,
        after: str | None = None,
        limit: int = 1_000,
        values: bool = True,
        names: Sequence[str] = (),
    ) -> list[StepRecord]:
        row_key = self._queries.row_key(job_id)
        if row_key is None:
            return []
        found = await self._server.ask(
            self._sql["steps"], *row_key, after or "", max(limit, 0), values, list(names) or None,
            writes=False,
        )  # fmt: skip
        return [_record(row) for row in found]

    async def retry_from(self, job_id: str, step: str) -> bool:
        return await self._retry_from(job_id, step)


def _record(row: Row) -> StepRecord:
    return StepRecord(
        row["name"], StepKind(row["kind"]), row["epoch"], row["began_at"], row["ended_at"],
        row["value"], row["fingerprint"], row["size"],
    )  # fmt: skip
