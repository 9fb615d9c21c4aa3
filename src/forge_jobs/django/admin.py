"""The list of jobs in Django's admin: read-only, newest first, in pages by cursor."""

from importlib import import_module
from typing import Any, Final
from urllib.parse import urlencode

from forge_jobs.core import names
from forge_jobs.core.errors import ForgeError, Invalid
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.ops import queries

from .application import forge_of
from .models import Job
from .object_tags import mission_control_url

admin: Any = import_module("django.contrib.admin")
path: Any = import_module("django.urls").path
TemplateResponse: Any = import_module("django.template.response").TemplateResponse
PermissionDenied: Any = import_module("django.core.exceptions").PermissionDenied

_FIELDS: Final = ("queue", "kind", "status", "tag")
_PAGE_JOBS: Final = 50


class JobAdmin(admin.ModelAdmin):
    """Reads jobs through the read models of Forge Jobs; Mission Control changes them."""

    def get_urls(self) -> list[Any]:
        """The list is the only page."""
        view = self.admin_site.admin_view(self.changelist_view)
        return [path("", view, name="forge_jobs_job_changelist")]

    def has_add_permission(self, request: Any, *_: Any) -> bool:
        """Jobs are enqueued by code."""
        return False

    def has_change_permission(self, request: Any, *_: Any) -> bool:
        """Mission Control changes jobs."""
        return False

    def has_delete_permission(self, request: Any, *_: Any) -> bool:
        """Mission Control deletes jobs."""
        return False

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        """One page of the jobs that match the query: queue, kind, status, tag."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        given: dict[str, str] = {
            name: request.GET[name].strip() for name in _FIELDS if request.GET.get(name)
        }
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "title": "Jobs",
            "opts": self.model._meta,
            "given": given,
            "fields": [(name, given.get(name, "")) for name in _FIELDS if name != "status"],
            "states": [(str(one), str(one) == given.get("status")) for one in JobStatus],
            **(extra_context or {}),
        }
        try:
            context |= _page(given, request.GET.get("after"))
        except ForgeError as error:
            context["error"] = str(error)
        return TemplateResponse(request, "forge_jobs/admin_jobs.html", context)


def _page(given: dict[str, str], after: str | None) -> dict[str, Any]:
    wanted = _filter(given)
    page, count = forge_of().client.access.run(
        lambda store: queries.jobs_and_count(store, wanted, limit=_PAGE_JOBS, after=after)
    )
    next_query = None if page.next is None else urlencode({**given, "after": page.next})
    return {
        "jobs": [(job, mission_control_url(f"jobs/{job.id}")) for job in page.jobs],
        "total": f"{count.jobs:,}{'+' if count.more else ''}",
        "next_query": next_query,
        "first_query": urlencode(given) if after else None,
        "mission_control": mission_control_url(""),
    }


def _filter(given: dict[str, str]) -> Filter:
    status = given.get("status")
    if status is not None and status not in list(JobStatus):
        raise Invalid(f"status {status!r} is unknown: use {', '.join(JobStatus)}")
    return Filter(
        queue=names.queue_name(given["queue"]) if "queue" in given else None,
        kind=names.kind_name(given["kind"]) if "kind" in given else None,
        statuses=() if status is None else (JobStatus(status),),
        tag=given.get("tag"),
    )


admin.site.register(Job, JobAdmin)
