"""Checks a kind and a payload that a person typed against what workers have published."""

from forge_jobs.store.published_kinds import PublishedKinds
from forge_jobs.store.store import Store


async def check_published(store: Store, kind: str, payload: object, *, remedy: str) -> bool:
    """Refuse a kind that no worker has published, and arguments that its task does not take.

    Raises UnknownKind or BadArguments; ``remedy`` is what to pass to store it all the same. The
    answer is whether anything has ever been published: without it nothing can be checked.
    """
    kinds = await PublishedKinds.read(store)
    kinds.check(kind, payload, known=True, remedy=remedy)
    return bool(kinds.queues)
