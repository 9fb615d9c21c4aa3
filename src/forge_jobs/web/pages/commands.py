"""Builds the ``forge`` commands that notices and previews show, quoted for a shell."""

import shlex
from collections.abc import Mapping
from typing import Final

_JOB_OPTIONS: Final = ("queue", "kind", "tag", "error")
_WITHOUT_OPTION: Final = ("key", "from", "until")


def forge_command(*arguments: str) -> str:
    """A ``forge`` command, with arguments quoted where a shell needs it."""
    return shlex.join(("forge", *arguments))


def bulk_command(action: str, params: Mapping[str, str]) -> str:
    """The bulk command for a filter; empty if a field has no option."""
    if any(params.get(name) for name in _WITHOUT_OPTION):
        return ""
    arguments: list[str] = []
    for status in filter(None, params.get("status", "").split(",")):
        arguments += ["--status", status]
    for name in _JOB_OPTIONS:
        if params.get(name):
            arguments += [f"--{name}", params[name]]
    return forge_command("jobs", action, *(arguments or ["--all"]))
