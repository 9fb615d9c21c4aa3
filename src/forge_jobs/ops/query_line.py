"""The filter of a query line, for lists on the pages, over HTTP and on the command line."""

from msgspec.structs import asdict, replace

from forge_jobs.core.errors import BadOption
from forge_jobs.core.job_query import JobQuery
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Store

from .store_time import store_now


async def query_filter(
    store: Store,
    query: JobQuery,
    *,
    statuses: tuple[JobStatus, ...] = (),
    clock: Clock = SYSTEM_CLOCK,
) -> Filter:
    """The filter of a query. ``statuses`` are those of a list that has them fixed; a query for
    another state is a mistake."""
    if statuses and not set(query.statuses) <= set(statuses):
        raise BadOption(
            f"status:{query.fields['status']} is not in this list of {', '.join(statuses)} jobs: "
            "leave it out, or look in the list of all jobs"
        )
    wanted = query.to_filter(await store_now(store, clock), statuses)
    worker = query.fields.get("worker")
    if worker is None:
        return wanted
    processes = await store.processes.all()
    owners = tuple(one.key for one in processes if worker.casefold() in one.label.casefold())
    if not owners:
        raise BadOption(f"worker:{worker} is the label of no live worker: see `forge workers`")
    return replace(wanted, owners=owners)


def joined(one: Filter, other: Filter) -> Filter:
    """The filter of both; BadOption where they exclude each other."""
    left, default = asdict(one), asdict(Filter())
    for name, value in asdict(other).items():
        if value == default[name]:
            continue
        if left[name] not in (default[name], value):
            raise BadOption(f"{name} is given twice, as an option and in the query: keep one")
        left[name] = value
    return Filter(**left)
