"""Writes retention and slots of the bots' queues from the environment to the store, at start.

The slots of a queue are those of all processes together. WORKERS decides them, unless an operator
changed them: then they differ from what a gateway wrote last.
"""

import logging
from collections.abc import Sequence
from typing import Final

from forge_jobs import Forge, QueueChange

from .config import Bot, Settings
from .storage import GatewayStore

_LOG: Final = logging.getLogger("telegram_gateway.queues")


async def apply_queue_settings(
    forge: Forge, storage: GatewayStore, settings: Settings, bots: Sequence[Bot]
) -> None:
    """Write the settings of all queues of these bots, and log how many slots they have."""
    store = await forge.aready()
    wanted, written = settings.workers, await storage.queue_slots()
    _LOG.info(
        "each queue runs %d jobs at a time, in all processes together (WORKERS)",
        wanted,
    )
    for bot in bots:
        queues = [bot.sends_queue, *([bot.updates_queue] if bot.in_queue else [])]
        for queue in queues:
            known = (await store.queues.ensure(queue, slots=wanted)).slots
            # Release 0.1 recorded nothing. Then only an explicit WORKERS replaces what is there.
            last = written.get(queue, known if settings.workers_given else wanted)
            kept = known not in (last, wanted)
            slots = known if kept else wanted
            change = QueueChange(
                slots=slots,
                retain_done_s=settings.done_retention_s,
                retain_dead_s=settings.dead_retention_s,
            )
            await store.queues.change(queue, change)
            if kept:
                _LOG.warning(
                    "queue %s keeps the %d slots that an operator set; set them to %d in Mission "
                    "Control to let WORKERS decide again",
                    queue,
                    known,
                    wanted,
                )
            elif written.get(queue) != wanted:
                await storage.record_queue_slots(queue, wanted)
