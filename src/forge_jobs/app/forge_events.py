"""The events of a Forge: ``forge.send``."""

from typing import Unpack

from forge_jobs.client.event_client import EventClient, Sender, SendOptions
from forge_jobs.core.events import SentEvent
from forge_jobs.core.instant import Duration
from forge_jobs.core.new_event import DEFAULT_KEEP, new_event

from .forge_store import ForgeStore


class ForgeEvents(ForgeStore):
    """The part of ``Forge`` that sends events to jobs that wait for them."""

    def send(
        self,
        name: str,
        payload: object = None,
        *,
        key: object = None,
        dedupe_key: str | None = None,
        keep: Duration = DEFAULT_KEEP,
        tx: object = None,
    ) -> SentEvent:
        """Send an event: every job that waits for this name and key goes on.

        It is kept for ``keep``, so that jobs that wait later find it. Of several events of one name
        with the same ``dedupe_key`` only the first is sent. With ``tx`` it is sent if and only if
        that transaction commits; see ``JobOptions``.

        ``forge.send("paid", {"cents": 5}, key=42)``
        """
        event = new_event(name, payload, key=key, dedupe_key=dedupe_key, keep=keep)
        return EventClient(self.client).send(event, tx)

    async def asend(
        self,
        name: str,
        payload: object = None,
        *,
        key: object = None,
        dedupe_key: str | None = None,
        keep: Duration = DEFAULT_KEEP,
        tx: object = None,
    ) -> SentEvent:
        """``send`` for coroutines."""
        event = new_event(name, payload, key=key, dedupe_key=dedupe_key, keep=keep)
        return await EventClient(self.client).asend(event, tx)

    def using(self, **options: Unpack[SendOptions]) -> Sender:
        """Options for the events sent through it:
        ``forge.using(tx=connection, dedupe_key="evt_1").send("paid", {...})``."""
        return Sender(EventClient(self.client), options)
