"""``forge help``: what each error code means and what to do, from ``error_help.toml``.

docs/reference/errors.md is generated from the same explanations.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from inspect import cleandoc
from textwrap import fill
from typing import Annotated

import typer

from forge_jobs.core import errors
from forge_jobs.core.errors import ForgeError

from .exit_codes import FAILED, Stop, exit_code
from .options import AsJson
from .terminal import WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One error code. ``error`` is the name of its class, None for a code that has none; ``by`` is
    ``python``, ``cli`` or ``http``; ``page`` is a page of the documentation."""

    code: str
    means: str
    do: str
    page: str
    by: str
    error: str | None = None
    parent: str | None = None
    exit_code: int | None = None


def explanations() -> dict[str, Explanation]:
    """All codes, in the order of the tree in ``core.errors``."""
    data = files("forge_jobs.cli").joinpath("error_help.toml").read_text(encoding="utf-8")
    classes = {one.code: one for one in error_classes()}
    return {
        code: _explanation(code, texts, classes.get(code))
        for code, texts in tomllib.loads(data).items()
    }


def error_classes(root: type[ForgeError] = ForgeError) -> Iterator[type[ForgeError]]:
    """The public error classes, each before those below it."""
    yield root
    for below in root.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from error_classes(below)


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="[CODE]", help="The code of an error, or its class.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain an error code, or list all of them. Works offline.

    \b
    Example:
      forge help bad_url
    """
    known = explanations()
    if code is not None:
        _print_one(_found(known, code), as_json=as_json)
    elif as_json:
        typer.echo(json.dumps([asdict(one) for one in known.values()]))
    else:
        _print_all(known)


def plain(text: str) -> str:
    """A docstring's text as one paragraph, with code as messages have it."""
    return " ".join(text.split()).replace("``", "`")


def _explanation(
    code: str, texts: Mapping[str, str], error: type[ForgeError] | None
) -> Explanation:
    if error is None:
        means, do, page, by = (texts[key] for key in ("means", "do", "page", "by"))
        return Explanation(code=code, means=means, do=do, page=page, by=by)
    parent = error.__mro__[1].__name__
    return Explanation(
        code=code,
        means=plain(_meaning(error)),
        do=texts["do"],
        page=texts["page"],
        by="python",
        error=error.__name__,
        parent=None if error is ForgeError else parent,
        exit_code=exit_code(error.__new__(error)),
    )


def _meaning(error: type[ForgeError]) -> str:
    """The text of the docstring, without its example and without the command that shows it."""
    text = cleandoc(error.__doc__ or "").split("\n\n>>>")[0]
    return re.sub(rf"\s*\(``forge help {error.code}``\)", "", text)


def _found(known: Mapping[str, Explanation], wanted: str) -> Explanation:
    by_class = {one.error.lower(): one for one in known.values() if one.error is not None}
    word = wanted.strip().lower().replace("-", "_")
    found = known.get(word) or by_class.get(word)
    if found is not None:
        return found
    near = difflib.get_close_matches(word, [*known, *by_class], n=3, cutoff=0.5)
    codes = dict.fromkeys(name if name in known else by_class[name].code for name in near)
    hint = f"did you mean {' or '.join(codes)}?" if codes else "`forge help` lists all codes"
    message = f"there is no error code {wanted!r}: {hint}"
    raise Stop(message, code="not_found", exit_code=FAILED)


def _print_one(one: Explanation, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(one)))
        return
    names = f"{one.code} ({one.error})" if one.error else one.code
    typer.echo(names)
    for text in (one.means, one.do):
        typer.echo()
        typer.echo(fill(plain(text), WIDTH - 2, initial_indent="  ", subsequent_indent="  "))
    typer.echo()
    if one.exit_code is not None:
        typer.echo(f"  Exit code of forge: {one.exit_code}")
    typer.echo(f"  Page: docs/{one.page}")


def _print_all(known: Mapping[str, Explanation]) -> None:
    typer.echo("Error codes; `forge help CODE` says what to do.\n")
    width = max(map(len, known)) + 2
    for one in known.values():
        first = one.means.split(". ")[0].rstrip(".")
        typer.echo(fill(first, WIDTH, initial_indent=f"{one.code:<{width}}",
                        subsequent_indent=" " * width))  # fmt: skip
