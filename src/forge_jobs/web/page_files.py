"""Checks that the static files the templates load are installed; some come from npm."""

import logging
import re
from pathlib import Path
from typing import Final

from forge_jobs.ops.doctor import Finding, Severity

from .static_files import StaticFiles

STATIC: Final = Path(__file__).parent / "static"
FILES: Final = StaticFiles(STATIC)
TEMPLATES: Final = Path(__file__).parent / "templates"
REMEDY: Final = (
    "in a clone run `make setup`, or `python scripts/web_assets.py` where npm is installed; "
    "elsewhere reinstall forge-jobs from a wheel that was built with them"
)
_STATIC_URL: Final = re.compile(r"url\('/static/([^']+)'\)")
_log = logging.getLogger("forge_jobs.web")


def missing_files() -> list[str]:
    """Static files that a template loads and that do not exist, sorted."""
    texts = [path.read_text(encoding="utf-8") for path in TEMPLATES.glob("*.html")]
    referenced = {name for text in texts for name in _STATIC_URL.findall(text)}
    return sorted(name for name in referenced if not (STATIC / name).is_file())


def findings() -> list[Finding]:
    """A warning for ``forge doctor`` if files are missing."""
    if not (missing := missing_files()):
        return []
    text = f"files of Mission Control's pages are missing: {', '.join(missing)}"
    return [Finding(Severity.WARNING, "pages", text, REMEDY)]


def log_missing() -> None:
    """Log missing files; for a mounted Mission Control, whose application starts anyway."""
    for finding in findings():
        _log.error("%s; %s", finding.message, finding.cure)
