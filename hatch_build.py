"""A wheel or source archive holds the scripts of Mission Control's pages, or it is not built.

They come from npm and are not committed. A source archive carries them, so that a wheel built from
it needs no npm. An editable install is left alone: `make setup` brings the files in its next step,
and `forge web` says what to do where they are missing.
"""

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

REMEDY = """\
Cannot build forge-jobs: the scripts of Mission Control's pages are missing, and {reason}.
They are npm packages, pinned in package-lock.json. Do one of these, then build again:
  - install Node.js with npm (any version since 18), with access to an npm registry
  - in a clone: run `make setup`, which brings Node from a wheel where there is none
  - install a released wheel instead of building one
"""


class PagesHook(BuildHookInterface[Any]):
    """Runs before anything is packed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        assets = web_assets(Path(self.root))
        try:
            assets.bring()
        except assets.CannotFetch as error:
            self.app.abort(REMEDY.format(reason=error))


def web_assets(root: Path) -> Any:
    """scripts/web_assets.py, which is in no package."""
    path = root / "scripts" / "web_assets.py"
    spec = importlib.util.spec_from_file_location("web_assets", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
