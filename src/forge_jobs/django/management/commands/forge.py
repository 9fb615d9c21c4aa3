"""``manage.py forge …``: the ``forge`` command on the store of this project."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, ClassVar, Final

from forge_jobs.cli.main import main
from forge_jobs.django.application import backend_of

BaseCommand: Any = import_module("django.core.management.base").BaseCommand
_APP: Final = "forge_jobs.django.worker_app:forge"
# They take the place of the Forge object as their first argument.
_TAKE_APP: Final = ("worker", "dev")
_BACKEND: Final = "--backend"


class Command(BaseCommand):
    """The same commands as those of ``forge``."""

    help = (
        "Forge Jobs on the database of this project, for example: manage.py forge worker, "
        "manage.py forge web, manage.py forge jobs list --status dead, manage.py forge doctor. "
        "manage.py forge --help lists all commands; --backend ALIAS in front chooses one of TASKS."
    )
    requires_system_checks: ClassVar[list[str]] = []

    def run_from_argv(self, argv: list[str]) -> None:
        """All arguments belong to the command, also those that Django would take."""
        run(argv[2:])

    def add_arguments(self, parser: Any) -> None:
        """For ``call_command``."""
        parser.add_argument("arguments", nargs="*")

    def handle(self, *args: Any, **options: Any) -> None:
        """For ``call_command("forge", "jobs", "list")``."""
        try:
            run(options["arguments"])
        except SystemExit as end:
            if end.code:
                raise


def run(arguments: Sequence[str]) -> None:
    """Run one command on the store of a backend, and exit."""
    given = list(arguments)
    alias = None
    if given[:1] == [_BACKEND]:
        alias, given = given[1], given[2:]
    backend = backend_of(alias)
    os.environ["FORGE_DJANGO_BACKEND"] = backend.alias
    # For commands that open the store, and for child processes; not on a command line, where every
    # user of the machine could read it.
    os.environ["FORGE_URL"] = backend.application.forge.url
    if given[:1] and given[0] in _TAKE_APP and not {"--help", "-h"} & set(given):
        given.insert(1, _APP)
        _keep_path()
    main(given)


def _keep_path() -> None:
    """Let worker processes import the project from wherever manage.py was called."""
    paths = [path for path in (sys.path[0], os.environ.get("PYTHONPATH", "")) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
