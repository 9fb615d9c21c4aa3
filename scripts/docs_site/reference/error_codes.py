"""Reference of the error codes, from the explanations of ``forge help``."""

from forge_jobs.cli.error_help import Explanation, explanations

from .markdown import code, document, prose, table

_BY = {
    "cli": "Only the command line has this code.",
    "http": "Only the HTTP API has this code.",
}


def page() -> str:
    """The page of the error codes."""
    known = explanations()
    rows = [
        (
            f"[{code(one.code)}](#{one.code})",
            code(one.error or ""),
            prose(one.means.split(". ")[0].rstrip(".")),
        )
        for one in known.values()
    ]
    return document(
        "# Error codes",
        "Every error of the package is a `ForgeError` and has a stable `code`. Programs compare "
        "the class or the code, never the text. The command line prints the code with `--json`, "
        "the HTTP API as `code`; `forge help CODE` shows what is below without a network.",
        "All classes are in `forge_jobs`. An `except` for a class catches those below it too.",
        table(("code", "class", "meaning"), rows),
        *map(_entry, known.values()),
    )


def _entry(one: Explanation) -> str:
    facts: list[str] = []
    if one.error:
        below = f", a `{one.parent}`" if one.parent else ""
        facts.append(f"Class `{one.error}`{below}. Exit code of `forge`: {one.exit_code}.")
    else:
        facts.append(_BY[one.by])
    if one.page != "reference/errors.md":
        target = one.page.removeprefix("reference/") if "/" in one.page else f"../{one.page}"
        facts.append(f"More: [{one.page}]({target}).")
    return document(f"## {one.code}", prose(one.means), prose(one.do), " ".join(facts))
