"""The Forge of the Flask application that FLASK_APP names: what ``flask forge worker`` runs.

``forge worker forge_jobs.integrations.flask_worker:forge`` is the same, without loading the
application in the parent process.
"""

import os
from typing import Final

from flask.cli import ScriptInfo

from forge_jobs.app import Forge
from forge_jobs.core.errors import BadOption


def _load() -> Forge:
    app = ScriptInfo(app_import_path=os.environ.get("FLASK_APP")).load_app()
    found = app.extensions.get("forge")
    if not isinstance(found, Forge):
        raise BadOption(
            f"the Flask application {app.name!r} has no Forge: FlaskForge(forge, app), or "
            "init_app(app) in its factory"
        )
    return found


forge: Final = _load()
