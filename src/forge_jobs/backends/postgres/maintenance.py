"""Schema, size and diagnosis of a Postgres database, for ``forge db`` and ``forge doctor``."""

from collections.abc import Awaitable, Callable
from typing import Final

from forge_jobs.store.store import Finding, SchemaStatus, StoreSize

from . import schema, sql_files
from .connection import error_mapping
from .connection.server import Server
from .diagnosis import Examination

_PROBE_MAX_AGE_S: Final = 60.0


class PostgresMaintenance:
    """Maintenance of the database. No method needs the store to be open."""

    def __init__(
        self,
        server: Server,
        close: Callable[[], Awaitable[None]],
        notify_round_trip: Callable[[], Awaitable[float | None]],
    ) -> None:
        self._server = server
        self._close = close
        self._notify_round_trip = notify_round_trip
        self._last_probe: tuple[float, float | None] | None = None

    async def migrate(self) -> SchemaStatus:
        await schema.create_database(self._server)
        return (await schema.migrate(self._server)).status

    async def schema_status(self) -> SchemaStatus:
        return await schema.status(self._server)

    async def drop(self) -> None:
        await self._close()
        await schema.drop(self._server)

    async def examine(self, *, deep: bool = True) -> list[Finding]:
        return await Examination(self._server, self._probe if deep else self._recent_probe).run()

    async def _probe(self) -> float | None:
        took_s = await self._notify_round_trip()
        self._last_probe = (self._server.clock.mono(), took_s)
        return took_s

    async def _recent_probe(self) -> float | None:
        """The last result, if it is recent. A probe costs a commit and two connections: too much
        for a page that refreshes every second and after each commit."""
        if (
            self._last_probe is None
            or self._server.clock.mono() - self._last_probe[0] > _PROBE_MAX_AGE_S
        ):
            return await self._probe()
        return self._last_probe[1]

    async def size(self) -> StoreSize:
        address = self._server.address
        statement = sql_files.statements("maintenance", address.schema)["sizes"]
        driver = await self._server.connect(pooled=True)
        try:
            found = await driver.fetch(statement, address.schema)
        except Exception as error:
            raise error_mapping.translated(
                error, location=address.location, may_have_committed=False
            ) from None
        finally:
            driver.terminate()
        parts = tuple((str(row["name"]), int(row["bytes"])) for row in found)
        return StoreSize(total=sum(count for _, count in parts), parts=parts)

    def describe(self) -> dict[str, str]:
        address = self._server.address
        return {"backend": "postgres", "place": address.location, "namespace": address.schema}
