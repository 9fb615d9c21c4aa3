"""The model ``Job``, which has no table."""

from importlib import import_module
from typing import Any, ClassVar

_db: Any = import_module("django.db")
migrations: Any = _db.migrations
models: Any = _db.models


class Migration(migrations.Migration):
    """Names the model for content types and permissions."""

    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            name="Job",
            fields=[("id", models.CharField(max_length=26, primary_key=True, serialize=False))],
            options={
                "verbose_name": "job",
                "permissions": [("operate_job", "Can operate jobs")],
                "managed": False,
                "default_permissions": ("view",),
            },
        )
    ]
