"""Whether every file that the pages load is installed; some come from npm and may be missing."""

import logging
import re
from pathlib import Path
from typing import Final

from forge_jobs.ops.doctor import Finding, Severity

STATIC: Final = Path(__file__).parent / "static"
TEMPLATES: Final = Path(__file__).parent / "templates"
REMEDY: Final = (
    "in a clone run `make setup`, or `python scripts/web_assets.py` where npm is installed; "
    "elsewhere reinstall forge-jobs from a wheel that was built with them"
)
_LOADED: Final = re.compile(r"url\('/static/([^']+)'\)")
_log = logging.getLogger("forge_jobs.web")


def missing() -> list[str]:
    """Files that a template loads and that are not there, in order of their names."""
    texts = [path.read_text(encoding="utf-8") for path in TEMPLATES.glob("*.html")]
    loaded = {name for text in texts for name in _LOADED.findall(text)}
    return sorted(name for name in loaded if not (STATIC / name).is_file())


def findings() -> list[Finding]:
    """What the doctor says about them: nothing while all are there."""
    if not (absent := missing()):
        return []
    text = f"files of Mission Control's pages are missing: {', '.join(absent)}"
    return [Finding(Severity.WARNING, "pages", text, REMEDY)]


def warn() -> None:
    """For pages that are part of another application, which starts all the same."""
    for finding in findings():
        _log.error("%s; %s", finding.message, finding.cure)
