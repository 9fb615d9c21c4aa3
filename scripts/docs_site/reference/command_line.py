"""Reference of the command line: every command, argument and option of the typer tree."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from forge_jobs.cli.commands import COMMANDS, tree

from .markdown import block, code, document, prose, table


def page() -> str:
    """The page of the ``forge`` command."""
    command = typer.main.get_command(tree())
    parts = [
        "# The forge command: every option",
        "What each command is for and how they work together is in [cli.md](../cli.md). "
        "`forge COMMAND --help` shows the same offline.",
    ]
    for name, member in commands(command, "forge"):
        parts.append(entry(name, member))
    return document(*parts)


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """A command and those below it, in the order of the help."""
    yield name, command
    below: dict[str, Any] = getattr(command, "commands", {})
    order = [one[0] for one in COMMANDS] if name == "forge" else list(below)
    for child in order:
        yield from commands(below[child], f"{name} {child}")


def entry(name: str, command: Any) -> str:
    """One command: its text, its example and its options."""
    level = "#" * (2 if name.count(" ") < 2 else 3)
    text, _, example = (command.help or "").partition("\b\n")
    parts = [f"{level} {name}", *(prose(one) for one in re.split(r"\n\s*\n", text.strip()) if one)]
    if example:
        lines = inspect.cleandoc("\n" + example).splitlines()[1:]
        parts.append(block(inspect.cleandoc("\n" + "\n".join(lines)).replace("\\[", "["), "sh"))
    rows = [_row(one) for one in command.params if not getattr(one, "hidden", False)]
    if rows:
        parts.append(table(("option", "meaning", "default"), rows))
    elif getattr(command, "commands", None):
        listed = ", ".join(f"`{name} {child}`" for child in command.commands)
        parts.append(f"Its commands: {listed}.")
    return document(*parts)


def _row(parameter: Any) -> tuple[str, str, str]:
    if parameter.param_type_name == "argument":
        shown = parameter.metavar or parameter.name.upper()
        return code(shown), _text(parameter), "" if not parameter.required else "required"
    names = ", ".join(code(one) for one in [*parameter.opts, *parameter.secondary_opts])
    if not parameter.is_flag:
        names += f" {code(parameter.metavar or parameter.type.name.upper())}"
    default = parameter.default
    is_empty = default is None or default is False or default == [] or callable(default)
    if parameter.required:
        return names, _text(parameter), "required"
    return names, _text(parameter), "" if is_empty else code(default)


def _text(parameter: Any) -> str:
    return prose((parameter.help or "").replace("\\[", "["))
