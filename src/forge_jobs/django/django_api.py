"""What this room uses of Django, and of ``django.tasks`` or its backport ``django_tasks`` for 5.2.

Django has no type stubs: what comes from it is ``Any`` here, once for the whole room.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

_db: Final = import_module("django.db")
apps: Any = import_module("django.apps").apps
autodiscover_modules: Any = import_module("django.utils.module_loading").autodiscover_modules
checks: Any = import_module("django.core.checks")
connections: Any = _db.connections
mail: Any = import_module("django.core.mail")
ImproperlyConfigured: Any = import_module("django.core.exceptions").ImproperlyConfigured
reset_queries: Any = _db.reset_queries
settings: Any = import_module("django.conf").settings
setting_changed: Any = import_module("django.core.signals").setting_changed
timezone: Any = import_module("django.utils.timezone")
transaction: Any = import_module("django.db.transaction")


def _package() -> str:
    if find_spec("django.tasks") is not None:
        return "django.tasks"
    if find_spec("django_tasks") is not None:
        return "django_tasks"
    raise ImproperlyConfigured(
        "forge_jobs.django needs django.tasks (Django 6.0) or its backport: "
        "pip install django-tasks"
    )


PACKAGE: Final = _package()


def _module(name: str) -> ModuleType:
    return import_module(f"{PACKAGE}.{name}")


# The backport's exceptions end in Error.
_exceptions: Final = vars(_module("exceptions"))
_base: Final = _module("base")
_json: Final = import_module(
    "django.utils.json" if PACKAGE == "django.tasks" else "django_tasks.utils"
)

BaseTaskBackend: Any = _module("backends.base").BaseTaskBackend
BaseTask: Any = _base.Task
BaseTaskContext: Any = _base.TaskContext
BaseTaskError: Any = _base.TaskError
BaseTaskResult: Any = _base.TaskResult
Status: Any = _base.TaskResultStatus
InvalidTask: Any = _exceptions.get("InvalidTask") or _exceptions["InvalidTaskError"]
InvalidTaskBackend: Any = (
    _exceptions.get("InvalidTaskBackend") or _exceptions["InvalidTaskBackendError"]
)
ResultDoesNotExist: Any = _exceptions["TaskResultDoesNotExist"]
normalize_json: Any = _json.normalize_json
task_backends: Any = import_module(PACKAGE).task_backends
_signals: Final = _module("signals")
task_enqueued: Any = _signals.task_enqueued
task_started: Any = _signals.task_started
task_finished: Any = _signals.task_finished
