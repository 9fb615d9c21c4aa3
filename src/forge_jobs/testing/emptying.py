"""``reset``: an empty store between two tests."""

from forge_jobs.app import Forge
from forge_jobs.core.errors import Refused
from forge_jobs.store.store import Store


def reset(forge: Forge) -> None:
    """Empty the store of a Forge: all jobs, schedules, settings, counters and the audit.

    The tables are dropped and created again, so it works on every store and leaves nothing behind;
    tables of the application in the same database stay. A SQLite file without such tables is
    deleted: open your own connections to it afterwards. Tasks and what else the code declares stay.
    Refused while a worker is registered in the store, of this process or another: it would lose its
    jobs, and a store with workers is hardly a test's.

    >>> job = send.enqueue("a@b.c")
    >>> testing.reset(forge)
    >>> forge.jobs().count()
    0
    """
    forge.client.access.run(_check_unused)
    forge.client.access.run(_drop)
    forge.close()
    forge.ready()


async def areset(forge: Forge) -> None:
    """``reset`` for coroutines.

    >>> asyncio.run(testing.areset(forge))
    """
    store = await forge.aready()
    await _check_unused(store)
    await _drop(store)
    await forge.aclose()
    await forge.aready()


async def _check_unused(store: Store) -> None:
    processes = await store.processes.all()
    if processes:
        listed = ", ".join(process.label for process in processes[:3])
        raise Refused(
            f"testing.reset would delete a store that {len(processes)} worker(s) use ({listed}): "
            "stop them first, and check that this is the store of your tests"
        )


async def _drop(store: Store) -> None:
    await store.maintenance.drop()
