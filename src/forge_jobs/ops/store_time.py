"""What time it is for whoever compares with times in the store, or writes one there."""

from forge_jobs.core.errors import StoreError
from forge_jobs.core.instant import Instant
from forge_jobs.kit.clock import Clock, is_machine_time
from forge_jobs.store.store import Store


async def store_now(store: Store, clock: Clock) -> Instant:
    """The store's time (the server's, where there is one), unless a test has put a clock in place.

    This machine may be set wrong: an age or a range of minutes that is counted from its clock would
    be off by as much.
    """
    return await store.now() if is_machine_time(clock) else clock.now()


async def entry_time(store: Store, clock: Clock) -> Instant:
    """The same for an entry of the audit. What it tells of is done by then, so that a store that
    went away meanwhile is no error: the entry gets this machine's time."""
    try:
        return await store_now(store, clock)
    except StoreError:
        return clock.now()
