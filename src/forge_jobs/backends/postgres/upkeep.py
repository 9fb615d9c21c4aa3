"""Looking after the database: what ``forge db`` and ``forge doctor`` ask for."""

from collections.abc import Awaitable, Callable

from forge_jobs.store.bundle import Finding, SchemaStatus, StoreSize

from . import faults, schema, sqlfiles
from .examine import Examination
from .session import Server


class PostgresUpkeep:
    """None of this needs a prior ``open``."""

    def __init__(
        self,
        server: Server,
        close: Callable[[], Awaitable[None]],
        hearing: Callable[[], Awaitable[float | None]],
    ) -> None:
        self._server = server
        self._close = close
        self._hearing = hearing

    async def migrate(self) -> SchemaStatus:
        await schema.create_database(self._server)
        return (await schema.migrate(self._server)).status

    async def schema_status(self) -> SchemaStatus:
        return await schema.status(self._server)

    async def drop(self) -> None:
        await self._close()
        await schema.drop(self._server)

    async def examine(self, *, deep: bool = True) -> list[Finding]:
        return await Examination(self._server, self._hearing).run()

    async def size(self) -> StoreSize:
        address = self._server.address
        wanted = sqlfiles.statements("upkeep", address.schema)["sizes"]
        driver = await self._server.connect(pooled=True)
        try:
            found = await driver.fetch(wanted, address.schema)
        except Exception as error:
            raise faults.meaning(error, place=address.place, exposed=False) from None
        finally:
            driver.terminate()
        parts = tuple((str(row["name"]), int(row["bytes"])) for row in found)
        return StoreSize(total=sum(count for _, count in parts), parts=parts)

    def describe(self) -> dict[str, str]:
        address = self._server.address
        return {"backend": "postgres", "place": address.place, "namespace": address.schema}
