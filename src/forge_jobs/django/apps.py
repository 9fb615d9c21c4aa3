"""The application for INSTALLED_APPS."""

from importlib import import_module
from typing import Any

AppConfig: Any = import_module("django.apps").AppConfig


class ForgeJobsConfig(AppConfig):
    """Adds ``manage.py forge`` and the list of jobs in the admin."""

    name = "forge_jobs.django"
    label = "forge_jobs"
    verbose_name = "Forge Jobs"
    default_auto_field = "django.db.models.BigAutoField"
