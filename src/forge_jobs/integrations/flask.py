"""Flask: jobs run in the application's context, and ``flask forge`` is the ``forge`` command.

Flask itself is imported by the command only: whoever has an application has Flask.
"""

import os
from collections.abc import Generator
from typing import TYPE_CHECKING

import click

from forge_jobs.app import Forge
from forge_jobs.cli.main import main
from forge_jobs.core.errors import BadOption
from forge_jobs.engine.running.context import Context

if TYPE_CHECKING:
    from flask import Flask

__all__ = ["FlaskForge"]
_WORKER_APP = "forge_jobs.integrations.flask_worker:forge"


class FlaskForge:
    """Puts ``app.app_context()`` around every job, so that ``current_app`` and extensions work in
    tasks. ``app.extensions["forge"]`` is the Forge. With several applications the last one counts.

    >>> from flask import Flask
    >>> from forge_jobs.integrations.flask import FlaskForge
    >>> app = Flask("shop")
    >>> FlaskForge(forge, app).forge is app.extensions["forge"]
    True
    """

    def __init__(self, forge: Forge, app: "Flask | None" = None) -> None:
        if not isinstance(forge, Forge):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadOption(
                f"FlaskForge(...) takes a Forge, not {type(forge).__name__}: FlaskForge(forge, app)"
            )
        self.forge = forge
        self._app: Flask | None = None
        if app is not None:
            self.init_app(app)

    def init_app(self, app: "Flask") -> None:
        """Connect an application; for application factories."""
        if app.extensions.get("forge", self.forge) is not self.forge:
            raise BadOption(f"the application {app.name!r} has another Forge already")
        if self._app is None:
            self.forge.around_run(self._within)
        self._app = app
        app.extensions["forge"] = self.forge
        app.cli.add_command(_command)

    def _within(self, ctx: Context) -> Generator[None]:
        assert self._app is not None
        with self._app.app_context():
            yield


@click.command("forge", context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def _command(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Jobs: worker, web, jobs, queues, … as the forge command has them."""
    from flask.cli import ScriptInfo

    info = context.ensure_object(ScriptInfo)
    forge: Forge = info.load_app().extensions["forge"]
    os.environ["FORGE_URL"] = forge.url
    given = list(arguments)
    if given[:1] in (["worker"], ["dev"]) and "--help" not in given:
        # Its processes are new ones: they make the application again, from the same place.
        if info.app_import_path:
            os.environ["FLASK_APP"] = info.app_import_path
        given.insert(1, _WORKER_APP)
    main(given)
