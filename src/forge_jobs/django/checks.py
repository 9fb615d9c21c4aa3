"""System checks of a ForgeBackend: ``manage.py check``."""

import os
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from forge_jobs.client.options import task_settings
from forge_jobs.core.errors import ForgeError

from . import address
from .django_api import ImproperlyConfigured, apps, checks, connections, normalize_json
from .task import calls_of


def backend_problems(backend: Any) -> Iterator[Any]:
    """Everything that is wrong with the settings of a backend and with its tasks."""
    found = [*_option_problems(backend), *_database_problems(backend)]
    yield from found
    if not any(problem.is_serious() for problem in found):
        yield from _task_problems(backend)


def _option_problems(backend: Any) -> Iterator[Any]:
    where = f"TASKS[{backend.alias!r}]['OPTIONS']"
    given: dict[str, Any] = backend.options
    for name in given:
        if name not in address.OPTIONS:
            near = get_close_matches(name, address.OPTIONS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(address.OPTIONS)}."
            yield checks.Error(
                f"{where} has an unknown option {name!r}.", hint=hint, id="forge_jobs.E001"
            )
    try:
        task_settings(backend.defaults, where=f"{where}['defaults']")
    except ForgeError as error:
        yield checks.Error(str(error), id="forge_jobs.E002")
    if not apps.is_installed("forge_jobs.django"):
        yield checks.Warning(
            "forge_jobs.django is not in INSTALLED_APPS: manage.py has no command forge.",
            hint="INSTALLED_APPS += ['forge_jobs.django']",
            id="forge_jobs.W001",
        )


def _database_problems(backend: Any) -> Iterator[Any]:
    alias = address.database_of(backend.options)
    if alias not in connections.settings:
        yield checks.Error(
            f"TASKS[{backend.alias!r}]['OPTIONS']['database'] is {alias!r}, which DATABASES does "
            "not have.",
            hint=f"Use one of {', '.join(map(repr, connections.settings))}.",
            id="forge_jobs.E003",
        )
        return
    try:
        url = address.store_url(backend.options)
    except ImproperlyConfigured as error:
        yield checks.Error(str(error), id="forge_jobs.E004")
        return
    if not address.joins(backend.options):
        yield checks.Warning(
            f"The jobs of TASKS[{backend.alias!r}] are not in the database {alias!r}: inside "
            "atomic() they are stored after the commit, and are lost if the process dies between.",
            hint="Leave out OPTIONS['url'], or let OPTIONS['database'] name its alias.",
            id="forge_jobs.W002",
        )
    settings = connections[alias].settings_dict
    mode = settings.get("OPTIONS", {}).get("transaction_mode")
    if url.startswith("sqlite:") and str(mode).upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        yield checks.Warning(
            f"DATABASES[{alias!r}] begins transactions that read before they take the lock: a task "
            "enqueued in one fails with 'database is locked' if another process wrote meanwhile.",
            hint=f"DATABASES[{alias!r}]['OPTIONS'] = {{'transaction_mode': 'IMMEDIATE'}}",
            id="forge_jobs.W003",
        )


def _task_problems(backend: Any) -> Iterator[Any]:
    from .application import DECLARED

    served = _served(backend)
    for kind, task in DECLARED.all().items():
        if task.backend != backend.alias:
            continue
        if served and task.queue_name not in served:
            yield checks.Warning(
                f"No worker serves the queue {task.queue_name!r} of the task {kind}: it has "
                f"{', '.join(sorted(served))} only.",
                hint="Add it to OPTIONS['queues'] or to FORGE_QUEUES, whichever you use.",
                id="forge_jobs.W004",
            )
        for name, value in calls_of(task, backend.defaults).arguments.defaults.items():
            if not _is_json(value):
                yield checks.Warning(
                    f"The default of the argument {name!r} of the task {kind} is no JSON "
                    f"({type(value).__name__}): a caller cannot pass such a value.",
                    hint="Use None, and make the value inside the task.",
                    id="forge_jobs.W005",
                )


def _served(backend: Any) -> set[str]:
    """The queues that workers are limited to; empty: they serve those of all tasks."""
    listed = os.environ.get("FORGE_QUEUES", "")
    names = [part.partition(":")[0].strip() for part in listed.split(",")]
    return {name for name in names if name} or set(backend.options.get("queues", {}))


def _is_json(value: object) -> bool:
    try:
        normalize_json(value)
    except (TypeError, ValueError):
        return False
    return True
