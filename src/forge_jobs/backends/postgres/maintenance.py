"""Looking after the database: what ``forge db`` and ``forge doctor`` ask for."""

from collections.abc import Awaitable, Callable
from typing import Final

from forge_jobs.store.store import Finding, SchemaStatus, StoreSize

from . import schema, sql_files
from .connection import error_mapping
from .connection.server import Server
from .diagnosis import Examination

_HEARD_S: Final = 60.0


class PostgresMaintenance:
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
        self._heard: tuple[float, float | None] | None = None

    async def migrate(self) -> SchemaStatus:
        await schema.create_database(self._server)
        return (await schema.migrate(self._server)).status

    async def schema_status(self) -> SchemaStatus:
        return await schema.status(self._server)

    async def drop(self) -> None:
        await self._close()
        await schema.drop(self._server)

    async def examine(self, *, deep: bool = True) -> list[Finding]:
        return await Examination(self._server, self._hears if deep else self._heard_lately).run()

    async def _hears(self) -> float | None:
        took_s = await self._hearing()
        self._heard = (self._server.clock.mono(), took_s)
        return took_s

    async def _heard_lately(self) -> float | None:
        """A notification is a commit, and two connections besides: a page that is drawn every
        second must not cause either, least of all because it sees that somebody committed."""
        if self._heard is None or self._server.clock.mono() - self._heard[0] > _HEARD_S:
            return await self._hears()
        return self._heard[1]

    async def size(self) -> StoreSize:
        address = self._server.address
        wanted = sql_files.statements("maintenance", address.schema)["sizes"]
        driver = await self._server.connect(pooled=True)
        try:
            found = await driver.fetch(wanted, address.schema)
        except Exception as error:
            raise error_mapping.meaning(error, place=address.place, exposed=False) from None
        finally:
            driver.terminate()
        parts = tuple((str(row["name"]), int(row["bytes"])) for row in found)
        return StoreSize(total=sum(count for _, count in parts), parts=parts)

    def describe(self) -> dict[str, str]:
        address = self._server.address
        return {"backend": "postgres", "place": address.place, "namespace": address.schema}
