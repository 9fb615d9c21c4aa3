"""The model behind the list of jobs in the admin: no table, only names and permissions."""

from importlib import import_module
from typing import Any, ClassVar

models: Any = import_module("django.db.models")


class Job(models.Model):
    """A stored job. It is read through Forge Jobs, never by Django's ORM."""

    id = models.CharField(max_length=26, primary_key=True)

    class Meta:
        """``operate_job`` lets staff change jobs in Mission Control."""

        managed = False
        default_permissions = ("view",)
        permissions: ClassVar[list[tuple[str, str]]] = [("operate_job", "Can operate jobs")]
        verbose_name = "job"
