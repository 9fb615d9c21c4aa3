"""Settings of Sphinx for the site: Markdown through MyST, Furo as theme, nothing fetched."""

from importlib.metadata import version as installed
from pathlib import Path

project = "Forge Jobs"
author = "The Forge Jobs authors"
copyright = author
version = release = installed("forge-jobs")

extensions = ["myst_parser", "scripts.docs_site.sidebar"]
exclude_patterns = [".doctrees"]
source_suffix = {".md": "markdown"}
root_doc = "index"
nitpicky = True
# Quotes and dashes are printed as they are written: many are part of a command.
smartquotes = False
# Blocks without a language are output of commands, or pseudocode.
highlight_language = "text"

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
# What is in braces or dollars in these pages is code, not markup.
myst_disable_syntax = ["colon_fence"]

html_theme = "furo"
html_title = f"Forge Jobs {version}"
html_static_path = ["theme"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "search_scores.js")
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#1d4ed8",
        "color-brand-content": "#1d4ed8",
        "color-brand-visited": "#6b21a8",
    },
    "dark_css_variables": {
        "color-brand-primary": "#93b4ff",
        "color-brand-content": "#93b4ff",
        "color-brand-visited": "#d0aaf5",
    },
}
