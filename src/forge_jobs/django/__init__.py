"""Forge Jobs as a backend of ``django.tasks``: Django 6.0 and newer, or 5.2 with django-tasks.

::

    INSTALLED_APPS += ["forge_jobs.django"]
    TASKS = {"default": {"BACKEND": "forge_jobs.django.ForgeBackend", "QUEUES": []}}

``manage.py forge worker`` runs the jobs. Needs the extra ``[django]``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forge_jobs.core.retry import Retry

    from .application import forge_of
    from .backend import ForgeBackend
    from .mission_control import mission_control_urls
    from .object_tags import object_jobs_url, object_tag
    from .task import ForgeTask, forge_options

__all__ = [
    "ForgeBackend", "ForgeTask", "Retry", "forge_of", "forge_options", "mission_control_urls",
    "object_jobs_url", "object_tag",
]  # fmt: skip

# Imported on first use: Django imports this package before its settings and models are ready.
_HOMES = {
    "ForgeBackend": "forge_jobs.django.backend",
    "ForgeTask": "forge_jobs.django.task",
    "Retry": "forge_jobs.core.retry",
    "forge_of": "forge_jobs.django.application",
    "forge_options": "forge_jobs.django.task",
    "mission_control_urls": "forge_jobs.django.mission_control",
    "object_jobs_url": "forge_jobs.django.object_tags",
    "object_tag": "forge_jobs.django.object_tags",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'forge_jobs.django' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)
