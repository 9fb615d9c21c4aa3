"""Every error the package raises, in one tree.

::

    ForgeError
     ├ Invalid          the caller is wrong; repeating the call cannot help
     │   ├ BadName  BadOption  BadDuration  BadTime  BadCron  BadUrl  BadConfig  BadAppPath
     │   ├ BadPayload ─ PayloadTooLarge
     │   ├ BadArguments  UnknownKind  KindTaken  NoQueues  NotYet  BadStep
     ├ NotFound         the named job, queue, schedule or limit does not exist
     ├ Conflict         KeyTaken  Refused  LeaseLost
     ├ StoreError
     │   ├ Unavailable  certainly no effect: safe to repeat
     │   │   └ StoreReplaced  the database file was removed or replaced: restart the process
     │   ├ Unknown      an effect is possible: repeat only with a dedupe key
     │   ├ Full         disk or memory is full; nothing was stored
     │   ├ NotWritable ─ ServerTooOld
     │   ├ Corrupt  SchemaMismatch
     ├ ResultTimeout  JobFailed     while waiting for a result
     ├ WaitTimeout                  while waiting for an event
     └ Closed           closed during the call, or the interpreter is shutting down

Each class has a stable ``code``; programs compare the class or the code, never the text.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from .failing_line import failing_line

if TYPE_CHECKING:
    from .job import AttemptError


class ForgeError(Exception):
    """The root of all errors of this package.

    >>> try:
    ...     job = send.enqueue(42)
    ... except ForgeError as error:
    ...     print(error.code)
    bad_arguments
    """

    code: ClassVar[str] = "forge_error"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.add_note(f"more: forge help {self.code}")


class Invalid(ForgeError):
    """The request itself is wrong: ``send.enqueue(42)`` where a text is needed."""

    code = "invalid"


class BadName(Invalid):
    """A name of a queue, kind, tag, key or lane breaks its rule: ``send.using(queue="a b")``."""

    code = "bad_name"

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(f"{field} {value!r} is not allowed: {rule}")
        self.field = field


class BadOption(Invalid):
    """An option is unknown, or its value is outside its range: ``send.using(prio=5)``."""

    code = "bad_option"


class BadDuration(Invalid):
    """A duration could not be read: ``send.using(delay="soon")``."""

    code = "bad_duration"

    def __init__(self, field: str, value: object) -> None:
        super().__init__(
            f"{field}={value!r} is not a duration: use seconds, a timedelta, "
            'or text such as "30s", "10m", "1h30m"; it must not be negative'
        )
        self.field = field


class BadTime(Invalid):
    """A moment without a time zone: ``send.using(run_at=datetime(2030, 1, 1))``."""

    code = "bad_time"

    def __init__(self, field: str, value: object) -> None:
        super().__init__(
            f"{field}={value!r} has no time zone: pass an aware datetime, "
            "for example datetime.now(timezone.utc)"
        )
        self.field = field


class BadCron(Invalid):
    """A cron expression or its time zone cannot be used:
    ``forge.schedules.create("n", "every day", send, payload={"to": "a@b.c"})``."""

    code = "bad_cron"


class BadUrl(Invalid):
    """A store address that cannot be used: ``Forge("mysql://host/db")``. The message never repeats
    a password."""

    code = "bad_url"


class BadConfig(Invalid):
    """A setting in the environment or in forge.toml is wrong:
    ``queues_from_env({"FORGE_QUEUES": "mail:many"})``."""

    code = "bad_config"


class BadAppPath(Invalid):
    """``pkg.module:object`` did not lead to a Forge object (``forge help bad_app_path``)."""

    code = "bad_app_path"


class BadPayload(Invalid):
    """The arguments cannot be stored as JSON: ``forge.enqueue("note", {"at": object()})``."""

    code = "bad_payload"


class PayloadTooLarge(BadPayload):
    """The arguments are larger than the limit: ``send.enqueue("a" * 2_000_000)``."""

    code = "payload_too_large"

    def __init__(
        self, size: int, limit: int, *, what: str = "payload", fixed_limit: bool = False
    ) -> None:
        remedy = "" if fixed_limit else ", or raise payload_limit on the task"
        super().__init__(
            f"{what} is {size:,} bytes and the limit is {limit:,}: store the data elsewhere and "
            f"pass a reference{remedy}"
        )
        self.size = size
        self.limit = limit


class BadArguments(Invalid):
    """The arguments do not fit the task's signature: ``send.enqueue(42)``."""

    code = "bad_arguments"


class UnknownKind(Invalid):
    """No task of that kind is registered and none was published by a worker
    (``forge help unknown_kind``)."""

    code = "unknown_kind"


class KindTaken(Invalid):
    """A second task was registered under the same kind: ``forge.task(kind="send")(print)``."""

    code = "kind_taken"


class NoQueues(Invalid):
    """A worker was started without a queue to serve: ``forge.run([])``."""

    code = "no_queues"


class NotYet(Invalid):
    """The feature is part of the interface but not built yet: ``Forge("redis://host")``."""

    code = "not_yet"


class BadStep(Invalid):
    """A step, sleep or wait of a handler cannot be done as asked, or what is stored of it does not
    fit the code any more. The text names the step and the remedy.

    >>> @forge.task
    ... async def fetch(ctx: Context) -> None:
    ...     await ctx.step("size", 42)
    >>> asyncio.run(fetch())
    Traceback (most recent call last):
    BadStep: step 'size' needs a function to call, not 42
    """

    code = "bad_step"


class NotFound(ForgeError):
    """The named thing does not exist: ``forge.schedules.get("nightly")``."""

    code = "not_found"


class Conflict(ForgeError):
    """The request is valid, but the present state does not allow it:
    ``send.enqueue("a@b.c").retry()`` of a job that waits."""

    code = "conflict"


class KeyTaken(Conflict):
    """Another live job holds the same dedupe key.

    >>> cancelled = send.using(dedupe_key="welcome:42").enqueue("a@b.c")
    >>> cancelled.cancel()
    True
    >>> job = send.using(dedupe_key="welcome:42").enqueue("a@b.c")
    >>> cancelled.retry()
    Traceback (most recent call last):
    KeyTaken: job ... cannot be retried
    """

    code = "key_taken"


class Refused(Conflict):
    """The job's state does not allow this action: ``send.enqueue("a@b.c").retry()``."""

    code = "refused"


class LeaseLost(Conflict):
    """The lease of a dequeued job ran out, or it was never this caller's
    (``forge help lease_lost``)."""

    code = "lease_lost"


class StoreError(ForgeError):
    """The store could not execute the call: ``Forge("sqlite:////no/folder/jobs.db").ready()``."""

    code = "store_error"


class Unavailable(StoreError):
    """The store cannot be reached; the call certainly had no effect:
    ``Forge("postgresql://127.0.0.1:1/jobs").ready()``."""

    code = "unavailable"


class StoreReplaced(Unavailable):
    """The database file was removed or replaced while this process used it. Nothing was stored; a
    restarted process uses the file that is there then (``forge help store_replaced``)."""

    code = "store_replaced"


class Unknown(StoreError):
    """The reply was lost; the call may have had its effect.

    >>> order = send.using(dedupe_key="order:7")
    >>> try:
    ...     job = order.enqueue("a@b.c")
    ... except Unknown:  # repeated, it stores no second job
    ...     job = order.enqueue("a@b.c")
    """

    code = "unknown_effect"


class Full(StoreError):
    """No room left; nothing was stored (``forge help full``)."""

    code = "full"


class NotWritable(StoreError):
    """The store exists but cannot be written, or its location is unsuitable:
    ``Forge("sqlite:////no/such/folder/jobs.db").ready()``."""

    code = "not_writable"


class ServerTooOld(NotWritable):
    """The database server is older than the oldest supported version; nothing was created
    (``forge help server_too_old``)."""

    code = "server_too_old"

    def __init__(self, address: str, version: str, oldest: int) -> None:
        super().__init__(
            f"{address} runs Postgres {version} and {oldest} or newer is needed: upgrade the "
            "server, or give the address of a newer one"
        )
        self.version = version
        self.oldest = oldest


class Corrupt(StoreError):
    """The stored data is damaged (``forge help corrupt``)."""

    code = "corrupt"


class SchemaMismatch(StoreError):
    """The schema of the database belongs to another version of this package
    (``forge help schema_mismatch``)."""

    code = "schema_mismatch"


class ResultTimeout(ForgeError, TimeoutError):
    """The job did not end within the given time: ``send.enqueue("a@b.c").result(timeout=0.01)``.
    The job itself is not affected. It is a ``TimeoutError`` too, as callers of other waiting
    functions expect."""

    code = "result_timeout"


class WaitTimeout(ForgeError, TimeoutError):
    """No event was sent before the deadline of ``ctx.wait_for``.

    >>> @forge.task
    ... async def fulfil(order: int, ctx: Context) -> str:
    ...     try:
    ...         return await ctx.wait_for("paid", key=order, timeout="3d")
    ...     except WaitTimeout:
    ...         return "never paid"
    """

    code = "wait_timeout"


class JobFailed(ForgeError):
    """The awaited job ended as dead or cancelled.

    ``error`` is its last error, ``errors`` are its failed attempts, oldest first, ``attempts``
    counts those that were started. ``traceback`` is that of the last failed attempt, as text; it is
    also the ``__cause__``, so that an uncaught JobFailed prints it.

    >>> job = send.enqueue("a@b.c")
    >>> job.cancel()
    True
    >>> job.result(timeout=10)
    Traceback (most recent call last):
    JobFailed: job ... ended as cancelled
    """

    code = "job_failed"

    def __init__(
        self,
        job_id: str,
        status: str,
        error: str | None,
        *,
        attempts: int = 0,
        errors: "tuple[AttemptError, ...]" = (),
    ) -> None:
        self.job_id = job_id
        self.status = status
        self.error = error
        self.attempts = attempts
        self.errors = errors
        self.traceback = errors[-1].traceback if errors else None
        line = failing_line(self.traceback)
        where = "" if line is None else f" ({line})"
        super().__init__(f"job {job_id} ended as {status}: {error or 'no reason recorded'}{where}")
        if self.traceback is not None:
            self.__cause__ = RemoteTraceback(self.traceback)

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild = partial(JobFailed, attempts=self.attempts, errors=self.errors)
        return rebuild, (self.job_id, self.status, self.error)


class RemoteTraceback(Exception):
    """The traceback of a handler that ran elsewhere, as the cause of a JobFailed."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}\n"""'


class Closed(ForgeError):
    """The store was closed while a call used it, or the interpreter is shutting down.

    A Forge that was closed before the call opens again instead (``forge help closed``)."""

    code = "closed"
