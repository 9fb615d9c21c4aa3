"""The store of a Forge: its address, opening it, closing it, and the client that uses it."""

from types import TracebackType
from typing import Self, TypeVar

from forge_jobs import config
from forge_jobs.app.clock import ForgeClock
from forge_jobs.backends.url import open_store
from forge_jobs.client.job_client import JobClient
from forge_jobs.client.store_access import StoreAccess
from forge_jobs.core.errors import BadOption, Refused
from forge_jobs.engine.running.registry import HandlerRegistry
from forge_jobs.kit import redact
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.store.enqueuer import Enqueuer
from forge_jobs.store.joined import JoinedBlock
from forge_jobs.store.store import Store

TxT = TypeVar("TxT")


class ForgeStore:
    """The base of ``Forge``: what it needs to reach its store, without tasks and workers.

    The store is opened on first use. ``registry`` has the hooks around every enqueue, and the
    limits that are published whenever the store was opened.
    """

    def __init__(self, url: str | None, *, clock: Clock, entropy: Entropy) -> None:
        self.clock = ForgeClock(clock)
        self.entropy = entropy
        self.registry = HandlerRegistry()
        self._url = url
        self._made = None if url is None else self._store_at(url)
        self._access = StoreAccess(
            self._make_store, migrate=config.auto_migrate, on_open=self._publish_limits
        )
        self.enqueuer = Enqueuer(self._access, self.registry.around_enqueue)
        # A caller waits for a result in real time, whatever clock a test puts in place.
        self.client = JobClient(self._access, self.enqueuer, SYSTEM_CLOCK)
        self._access.at_fork(self.client.workers.clear)

    def __repr__(self) -> str:
        return f"<Forge {redact.url(self._url) if self._url else 'at its configured address'}>"

    @property
    def url(self) -> str:
        """The address in use. It may hold a password: print it through ``kit.redact`` only."""
        if self._url is None:
            self._url = config.load().url
        return self._url

    @property
    def dsn(self) -> str:
        """The Postgres address without the options of Forge Jobs (schema, pooler, listen_url), as
        psycopg, asyncpg and SQLAlchemy take it. It may hold a password. BadOption on other stores.
        """
        if not self.url.startswith(("postgres://", "postgresql://")):
            raise BadOption("forge.dsn is for Postgres: this Forge has another store")
        from forge_jobs.backends.postgres.connection.address import parse

        return parse(self.url).dsn

    @property
    def store(self) -> Store:
        """The store; not necessarily open (``ready`` opens it)."""
        return self._access.store

    def joined(self, transaction: TxT) -> JoinedBlock[TxT]:
        """A block whose enqueues and events are part of your transaction, without ``tx=``.

        ``with forge.joined(session):`` takes what ``tx=`` takes: sessions and connections of
        SQLAlchemy, sync and async, and connections of the drivers. The block commits nothing: the
        jobs exist once your transaction commits. An explicit ``tx=`` inside comes first.
        """
        return self.enqueuer.join(transaction)

    def ready(self) -> Store:
        """Open the store now instead of on first use; raises what opening raises:
        ``forge.ready()``."""
        return self._access.ready()

    async def aready(self) -> Store:
        """``ready`` for coroutines."""
        return await self._access.aready()

    def close(self) -> None:
        """Close the store's connections and end the I/O thread. The next use opens it again:
        ``forge.close()``."""
        self._check_idle()
        self._access.close()

    async def aclose(self) -> None:
        """``close`` for coroutines."""
        self._check_idle()
        await self._access.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _check_idle(self) -> None:
        if self.client.workers:
            raise Refused("a worker of this Forge is running: leave its `async with` first")

    def _make_store(self) -> Store:
        return self._made if self._made is not None else self._store_at(self.url)

    def _store_at(self, url: str) -> Store:
        return open_store(url, clock=self.clock, entropy=self.entropy)

    async def _publish_limits(self, store: Store) -> None:
        declared = list(self.registry.limits.values())
        if declared:
            await store.limits.publish(declared)
