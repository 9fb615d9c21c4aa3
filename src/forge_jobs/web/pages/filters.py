"""Parses the filter of a list of jobs in the URL, so that a page can be bookmarked, shared and
acted on. It comes as a query line (``query``), as the fields of the form, or as both."""

from typing import Final

from forge_jobs.core import job_query
from forge_jobs.core.errors import BadOption
from forge_jobs.core.job_query import JobQuery
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.ops.query_line import query_filter
from forge_jobs.web.request_context import RequestContext

from .page import Params

FIELDS: Final = job_query.NAMES


def parse_query(params: Params) -> JobQuery:
    """The query of these parameters; BadOption for an invalid value."""
    query = job_query.parse(params.get("query", ""))
    more = job_query.parse(params.get("arguments", ""))
    if more.fields:
        name = next(iter(more.fields))
        raise BadOption(f"{name} is no argument: write {job_query.ARGUMENT}{name}:, or see above")
    line = JobQuery(
        fields=query.fields, arguments=tuple(dict.fromkeys((*query.arguments, *more.arguments)))
    )
    fields = {name: params.get(name, "").strip() for name in FIELDS}
    fields["since"] = fields["since"] or params.get("from", "")
    return job_query.parse(str(line.with_fields(fields)))


async def job_filter(
    context: RequestContext, query: JobQuery, statuses: tuple[JobStatus, ...] = ()
) -> Filter:
    """The filter of a query, at the store's time."""
    return await query_filter(context.store, query, statuses=statuses, clock=context.clock)


def query_parameters(query: JobQuery) -> dict[str, str]:
    """The parameters that keep a query in links and forms: the line without the state, which has
    a place of its own."""
    fields = {name: value for name, value in query.fields.items() if name != "status"}
    line = JobQuery(fields=fields, arguments=query.arguments)
    return {"query": str(line), "status": query.fields.get("status", "")}


def form_fields(query: JobQuery) -> dict[str, str]:
    """The values of the form's fields."""
    arguments = str(JobQuery(arguments=query.arguments))
    return {**{name: query.fields.get(name, "") for name in FIELDS}, "arguments": arguments}
