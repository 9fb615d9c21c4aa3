"""Commands as people may paste them into a shell."""

import shlex
from collections.abc import Mapping
from typing import Final

_JOB_OPTIONS: Final = ("queue", "kind", "tag", "error")
_NO_OPTION: Final = ("key", "from", "until")


def forge(*words: str) -> str:
    """A ``forge`` command, each word quoted where a shell needs it."""
    return shlex.join(("forge", *words))


def jobs(action: str, given: Mapping[str, str]) -> str:
    """The bulk command for a filter; empty where no option says the same."""
    if any(given.get(name) for name in _NO_OPTION):
        return ""
    words: list[str] = []
    for status in filter(None, given.get("status", "").split(",")):
        words += ["--status", status]
    for name in _JOB_OPTIONS:
        if given.get(name):
            words += [f"--{name}", given[name]]
    return forge("jobs", action, *(words or ["--all"]))
