"""The parent's side of an agent: a child process that runs one system and answers commands.

One JSON object per line in each direction. A child that is late is killed by its own id and its
last words are shown; a child whose parent is gone reads the end of its input and leaves.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STOP_SECONDS = 10.0


class AgentError(RuntimeError):
    """A child process failed, was late or said something that is not an answer."""


@dataclass(slots=True)
class Child:
    """A running subprocess whose standard error goes to a file, ended by id on leaving."""

    process: subprocess.Popen[bytes]
    log: Path

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Ask by SIGTERM, insist after `seconds`; always reap."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()

    def last_words(self, lines: int = 12) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.strip().splitlines()[-lines:])


def start_child(
    arguments: list[str], log: Path, environment: dict[str, str], *, speaks: bool = True
) -> Child:
    """Start `python -m …` from the project's root, its words kept in `log`.

    A child that does not speak to us writes its output to the log as well: nobody would empty
    the pipe, and a full pipe stops a process.
    """
    with log.open("ab") as words:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": search_path(), **environment},
            stdin=subprocess.PIPE if speaks else subprocess.DEVNULL,
            stdout=subprocess.PIPE if speaks else words,
            stderr=words,
        )
    return Child(process, log)


def search_path(*first: Path) -> str:
    """Where children look for modules: `first`, the project, then what PYTHONPATH names."""
    folders = [*map(os.fspath, first), os.fspath(ROOT), os.environ.get("PYTHONPATH")]
    return os.pathsep.join(filter(None, folders))


@dataclass(slots=True)
class Agent:
    """A child that runs `benchmarks.agent` for one system on one store."""

    child: Child
    name: str
    _unread: bytes = b""

    @property
    def pid(self) -> int:
        return self.child.process.pid

    def __enter__(self) -> Agent:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, verb: str, **arguments: Any) -> None:
        """Give a command without waiting for its answer."""
        line = json.dumps({"verb": verb, "arguments": arguments}).encode() + b"\n"
        stream = self.child.process.stdin
        assert stream is not None
        try:
            stream.write(line)
            stream.flush()
        except (BrokenPipeError, ValueError) as broken:
            raise AgentError(self._complaint(f"left before {verb!r}")) from broken

    def event(self, name: str, seconds: float = 60.0) -> dict[str, Any]:
        """Wait for an event that the running command announces, such as "up"."""
        message = self._next(seconds)
        if message.get("event") != name:
            raise AgentError(self._complaint(f"expected event {name!r}, got {message}"))
        return message

    def answer(self, seconds: float = 60.0) -> dict[str, Any]:
        """Wait for the answer of the command in hand."""
        message = self._next(seconds)
        if "error" in message:
            raise AgentError(self._complaint(str(message["error"])))
        if "answer" not in message:
            raise AgentError(self._complaint(f"expected an answer, got {message}"))
        return message["answer"]

    def ask(self, verb: str, seconds: float = 60.0, **arguments: Any) -> dict[str, Any]:
        self.send(verb, **arguments)
        return self.answer(seconds)

    def close(self) -> None:
        """End of input asks the child to leave; after the limit it is killed."""
        stream = self.child.process.stdin
        if stream is not None and not stream.closed:
            try:
                stream.close()
            except BrokenPipeError:
                pass
        try:
            self.child.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.child.stop(1.0)
        if self.child.process.stdout is not None:
            self.child.process.stdout.close()

    def _next(self, seconds: float) -> dict[str, Any]:
        stream = self.child.process.stdout
        assert stream is not None
        descriptor = stream.fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                self.child.stop(1.0)
                raise AgentError(self._complaint(f"no answer within {seconds:.0f} s"))
            piece = os.read(descriptor, 65_536)
            if not piece:
                raise AgentError(self._complaint("left without an answer"))
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def _complaint(self, text: str) -> str:
        return f"{self.name}: {text}\n{self.child.last_words()}".rstrip()
