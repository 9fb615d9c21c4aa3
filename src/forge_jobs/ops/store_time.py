"""The current time for comparisons with times in the store: the store clock."""

from forge_jobs.core.errors import StoreError
from forge_jobs.core.instant import Instant
from forge_jobs.kit.clock import Clock, is_machine_time
from forge_jobs.store.store import Store


async def store_now(store: Store, clock: Clock) -> Instant:
    """The store clock (the server's, where there is one), unless a test passes its own clock.

    This machine's clock may be wrong: ages and ranges of minutes computed from it would be off by
    the difference.
    """
    return await store.now() if is_machine_time(clock) else clock.now()


async def audit_time(store: Store, clock: Clock) -> Instant:
    """The time of an audit entry. The action is already committed, so if the store cannot be
    reached the entry gets this machine's time."""
    try:
        return await store_now(store, clock)
    except StoreError:
        return clock.now()
