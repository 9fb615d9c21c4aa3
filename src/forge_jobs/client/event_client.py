"""Sends events: ``forge.send``, ``forge.using(...).send`` and ``job.send``."""

from typing import TYPE_CHECKING, TypedDict, Unpack

from forge_jobs.core.errors import BadOption
from forge_jobs.core.events import NewEvent, SentEvent
from forge_jobs.core.instant import Duration
from forge_jobs.core.new_event import DEFAULT_KEEP, new_event

if TYPE_CHECKING:
    from .job_client import JobClient


class SendOptions(TypedDict, total=False):
    """Options of ``forge.using(...).send``: those of ``forge.send``."""

    key: object
    dedupe_key: str
    keep: Duration
    tx: object


class EventClient:
    """Stores events. ``tx`` is the caller's own connection with an open transaction; None: the one
    that the caller has joined, if any."""

    def __init__(self, client: "JobClient") -> None:
        self._client = client

    def send(self, event: NewEvent, tx: object = None) -> SentEvent:
        """Send one event, from synchronous code."""
        access = self._client.access
        if tx is None:
            tx = self._client.enqueuer.joined()
        if tx is not None:
            store = access.unopened() or access.ready()
            return store.send_in(tx, (event,))[0]
        (sent,) = access.run(lambda store: store.events.send((event,)))
        if self._client.inline_mode is not None:
            self._client.inline_mode.run(())
        return sent

    async def asend(self, event: NewEvent, tx: object = None) -> SentEvent:
        """``send`` for coroutines."""
        access = self._client.access
        if tx is None:
            tx = self._client.enqueuer.joined()
        if tx is not None:
            joined = access.unopened() or await access.aready()
            return (await joined.asend_in(tx, (event,)))[0]
        store = await access.aready()
        (sent,) = await store.events.send((event,))
        if self._client.inline_mode is not None:
            await self._client.inline_mode.arun(())
        return sent


class Sender:
    """``forge.using(...)``: sends events with options."""

    def __init__(self, events: EventClient, options: SendOptions) -> None:
        unknown = sorted(set(options) - {"key", "dedupe_key", "keep", "tx"})
        if unknown:
            raise BadOption(
                f"forge.using({unknown[0]}=...) is no option of forge.send: use key, dedupe_key, "
                "keep or tx. Options of jobs go into task.using(...)"
            )
        self._events = events
        self._options = options

    def using(self, **options: Unpack[SendOptions]) -> "Sender":
        """The same with these options on top."""
        return Sender(self._events, {**self._options, **options})

    def send(self, name: str, payload: object = None, *, key: object = None) -> SentEvent:
        """Send an event with these options."""
        return self._events.send(self._event(name, payload, key), self._options.get("tx"))

    async def asend(self, name: str, payload: object = None, *, key: object = None) -> SentEvent:
        """``send`` for coroutines."""
        return await self._events.asend(self._event(name, payload, key), self._options.get("tx"))

    def _event(self, name: str, payload: object, key: object) -> NewEvent:
        options = self._options
        return new_event(
            name,
            payload,
            key=options.get("key") if key is None else key,
            dedupe_key=options.get("dedupe_key"),
            keep=options.get("keep", DEFAULT_KEEP),
        )
