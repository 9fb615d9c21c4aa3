"""Builds the ``forge`` commands that notices and previews show, quoted for a shell."""

import shlex
from typing import Final

from forge_jobs.core.job_query import JobQuery

_JOB_OPTIONS: Final = ("queue", "kind", "tag", "error")


def forge_command(*arguments: str) -> str:
    """A ``forge`` command, with arguments quoted where a shell needs it."""
    return shlex.join(("forge", *arguments))


def bulk_command(action: str, query: JobQuery) -> str:
    """The bulk command for a query: options where there are some, the rest as a query line."""
    arguments: list[str] = []
    for status in query.statuses:
        arguments += ["--status", status]
    for name in _JOB_OPTIONS:
        if name in query.fields:
            arguments += [f"--{name}", query.fields[name]]
    rest = JobQuery(
        fields={
            name: value
            for name, value in query.fields.items()
            if name not in (*_JOB_OPTIONS, "status")
        },
        arguments=query.arguments,
    )
    if str(rest):
        arguments += ["--query", str(rest)]
    return forge_command("jobs", action, *(arguments or ["--all"]))
