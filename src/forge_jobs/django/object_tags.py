"""Tags that tie jobs to objects of the database: ``using(tags=[object_tag(order)])``."""

from importlib import import_module
from typing import Any
from urllib.parse import urlencode

_urls: Any = import_module("django.urls")


def object_tag(instance: Any) -> str:
    """The tag of a model instance, for example ``shop.order:42``."""
    return f"{instance._meta.label_lower}:{instance.pk}"


def object_jobs_url(instance: Any) -> str:
    """The page of the admin that lists the jobs of an object."""
    page: str = _urls.reverse("admin:forge_jobs_job_changelist")
    return f"{page}?{urlencode({'tag': object_tag(instance)})}"


def mission_control_url(rest: str) -> str | None:
    """The address of a page of Mission Control; None where the project has not mounted it."""
    try:
        return _urls.reverse("forge:page", kwargs={"rest": rest})
    except _urls.NoReverseMatch:
        return None
