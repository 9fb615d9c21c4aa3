"""The Postgres store: the contracts over one server."""

from collections.abc import Sequence

from forge_jobs.core.errors import BadOption
from forge_jobs.core.events import NewEvent, SentEvent
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.steps import StepWrite
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.store.jobs import Exchange, Exchanged
from forge_jobs.store.limits import Limits
from forge_jobs.store.queues import Queues
from forge_jobs.store.schedules import CronSchedules
from forge_jobs.store.store import Capabilities, Notify, Subscription
from forge_jobs.store.token_buckets import TokenBuckets

from . import schema, sql_files
from .breakdowns import PostgresBreakdowns
from .connection import address
from .connection.server import Server
from .enqueue import Enqueuer
from .error_groups import PostgresErrorGroups
from .events import PostgresEvents
from .jobs import PostgresJobs
from .limits import PostgresLimits
from .maintenance import PostgresMaintenance
from .metrics import PostgresMetrics
from .notify.claim_turns import ClaimTurns
from .notify.listener import NotificationListener
from .notify.notifier import Notifier
from .processes import PostgresProcesses
from .queries import Queries
from .schedules import PostgresSchedules, PostgresTokenBuckets
from .settings import PostgresSettings
from .steps import PostgresSteps
from .user_transactions import LIBRARIES, UserTransactions


class PostgresStore:
    """Jobs in one schema of a Postgres database.

    Store time is the server's, unless ``clock`` is not the machine's own: then it is that clock's.
    """

    capabilities = Capabilities(
        name="postgres",
        durable=True,
        multi_process=True,
        sync_calls=False,
        transactions=LIBRARIES,
        server_side=True,
    )

    def __init__(
        self, url: str, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY
    ) -> None:
        self._server = server = Server(address.parse(url), clock, entropy)
        self._notifier = notifier = Notifier(server)
        server.pool.before_close = notifier.flush
        turns = ClaimTurns()
        self._listener = NotificationListener(server, notifier, turns)
        self._enqueuer = Enqueuer(server, notifier)
        self._queries = Queries(server)
        self.processes = processes = PostgresProcesses(server, notifier, turns)
        self.jobs = PostgresJobs(
            server, notifier, self._enqueuer, self._queries, processes.declare_dead
        )
        self.steps = PostgresSteps(server, self._queries, self.jobs.retry_from)
        self.events = PostgresEvents(server, self._queries, self.jobs.notify)
        self.error_groups = PostgresErrorGroups(server)
        self._limits = PostgresLimits(server, notifier)
        self.settings = settings = PostgresSettings(server, notifier, self._limits)
        self.queues = Queues(settings, self._limits)
        self.limits = Limits(settings, self._limits, self.now)
        self.schedules = CronSchedules(
            settings, PostgresSchedules(server, notifier, self._enqueuer)
        )
        self.token_buckets = TokenBuckets(settings, PostgresTokenBuckets(server), self.now)
        self.breakdowns = PostgresBreakdowns(server)
        self.metrics = PostgresMetrics(server, self._queries, self.breakdowns)
        self._transactions = UserTransactions(server)
        self.maintenance = PostgresMaintenance(server, self.close, self._listener.round_trip_s)
        self._now = sql_files.statements("jobs", server.address.schema)["store_now"]
        self._tag = 0

    @property
    def tag(self) -> int:
        return self._tag

    async def open(self, *, migrate: bool = True) -> None:
        if self._server.opened:
            return
        server = self._server
        found = await (schema.migrate(server) if migrate else schema.read_schema(server))
        schema.check(server, found.status)
        self._tag = self._enqueuer.tag = self._queries.tag = self._transactions.tag = found.tag
        self._limits.tag = self.error_groups.tag = found.tag
        server.pooled = found.pooled
        server.opened = True

    async def close(self) -> None:
        if not self._server.opened:
            return
        await self._notifier.flush()
        await self._listener.close()
        self._server.opened = False
        await self._server.pool.close()

    async def now(self) -> Instant:
        row = await self._server.ask_row(self._now, self._server.store_clock.bind(), writes=False)
        assert row is not None
        return row["now"]

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise BadOption("the Postgres store has no synchronous path of its own: use the client")

    def try_enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued] | None:
        return self._enqueuer.try_enqueue_sync(jobs)

    def exchange_sync(self, request: Exchange) -> Exchanged:
        raise BadOption("the Postgres store has no synchronous path of its own: use the client")

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._transactions.enqueue_in(transaction, jobs)

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._transactions.aenqueue_in(transaction, jobs)

    def send_in(self, transaction: object, events: Sequence[NewEvent]) -> list[SentEvent]:
        return self._transactions.send_in(transaction, events)

    async def asend_in(self, transaction: object, events: Sequence[NewEvent]) -> list[SentEvent]:
        return await self._transactions.asend_in(transaction, events)

    def store_step_in(self, transaction: object, owner: int, step: StepWrite) -> None:
        self._transactions.store_step_in(transaction, owner, step)

    async def astore_step_in(self, transaction: object, owner: int, step: StepWrite) -> None:
        await self._transactions.astore_step_in(transaction, owner, step)

    async def subscribe(self, queues: Sequence[str], notify: Notify) -> Subscription:
        return await self._listener.subscribe(queues, notify)

    def after_fork(self) -> None:
        self._server.pool.abandon()
        self._server.line = None
        self._notifier.after_fork()
        self._listener.after_fork()
