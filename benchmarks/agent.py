"""The child's side: `python -m benchmarks.agent SYSTEM DIRECTORY SYNCHRONOUS [--audit]`.

Runs one system on one store in a process of its own and obeys commands from its parent, one
JSON object per line. It never measures two systems and never starts anything the parent did not
ask for.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import audit
from benchmarks.systems import load


class Answers:
    """The line back to the parent, on a private descriptor that no library can print into."""

    def __init__(self) -> None:
        self._descriptor = os.dup(1)
        os.dup2(2, 1)

    def event(self, name: str, **facts: Any) -> None:
        self._write({"event": name, **facts})

    def answer(self, result: dict[str, Any]) -> None:
        self._write({"answer": result})

    def error(self, text: str) -> None:
        self._write({"error": text})

    def _write(self, message: dict[str, Any]) -> None:
        os.write(self._descriptor, json.dumps(message).encode() + b"\n")


def serve(system: object, answers: Answers, commits: audit.Commits | None) -> None:
    """Obey until the parent closes the line."""
    for line in sys.stdin:
        command = json.loads(line)
        verb, arguments = command["verb"], command["arguments"]
        try:
            if verb == "commits":
                result = commits.summary() if commits is not None else {}
            else:
                action: Callable[..., dict[str, Any]] = getattr(system, verb)
                result = action(**arguments)
        except Exception as failure:
            traceback.print_exc()
            answers.error(f"{verb}: {type(failure).__name__}: {failure}")
        else:
            answers.answer(result)


def main(arguments: list[str]) -> None:
    name, directory, synchronous = arguments[:3]
    answers = Answers()
    commits = audit.install() if "--audit" in arguments else None
    system = load(name)(Path(directory), synchronous, answers.event)
    package = sys.modules.get("forge_jobs")
    answers.event("open", package=getattr(package, "__file__", None) or "")
    try:
        serve(system, answers, commits)
    finally:
        close: Callable[[], None] | None = getattr(system, "close", None)
        if close is not None:
            close()
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
