"""The list of commands that jobs may run: a file each, a template of arguments, typed slots.

A payload chooses a name and fills slots. It never reaches a shell, never adds an argument and never
makes one look like an option.
"""

import os
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from forge_jobs.core.errors import BadOption

from .cmd_exec_payload import Refusal

_UNSAFE: Final = re.compile(r"[\0\n\r]")
_TEXT_LONGEST: Final = 4_096


class Slot(Protocol):
    """A place in a command's arguments that a payload fills."""

    @property
    def default(self) -> str | int | float | None:
        """What stands there when the payload says nothing; None: it must say something."""
        ...

    @property
    def dash(self) -> bool:
        """Whether an argument may begin with a dash because of this value."""
        ...

    def fill(self, value: object) -> str:
        """The value as text, or Refusal with the rule it breaks."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Any text on one line; ``pattern`` must match all of it."""

    pattern: str | None = None
    longest: int = _TEXT_LONGEST
    dash: bool = False
    default: str | None = None

    def fill(self, value: object) -> str:
        """The text as it is."""
        if not isinstance(value, str):
            raise Refusal("must be text")
        if _UNSAFE.search(value):
            raise Refusal("must be one line without NUL; longer input goes through `stdin`")
        if len(value) > self.longest:
            raise Refusal(f"must not be longer than {self.longest} characters")
        if self.pattern is not None and re.fullmatch(self.pattern, value) is None:
            raise Refusal(f"must match {self.pattern}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer:
    """A whole number within bounds."""

    least: int = 0
    most: int = 2**63 - 1
    default: int | None = None

    @property
    def dash(self) -> bool:
        """A minus sign is fine where negative numbers were declared."""
        return self.least < 0

    def fill(self, value: object) -> str:
        """The number in decimal."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise Refusal("must be a whole number")
        if not self.least <= value <= self.most:
            raise Refusal(f"must lie between {self.least} and {self.most}")
        return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number within bounds."""

    least: float = 0.0
    most: float = 1e308
    default: float | None = None

    @property
    def dash(self) -> bool:
        """A minus sign is fine where negative numbers were declared."""
        return self.least < 0

    def fill(self, value: object) -> str:
        """The number as Python writes it."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise Refusal("must be a number")
        if not self.least <= value <= self.most:
            raise Refusal(f"must lie between {self.least:g} and {self.most:g}")
        return repr(value)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few values."""

    values: Sequence[str]
    default: str | None = None

    @property
    def dash(self) -> bool:
        """Whoever wrote the list knows what it holds."""
        return True

    def fill(self, value: object) -> str:
        """The value itself."""
        if not isinstance(value, str) or value not in self.values:
            raise Refusal(f"must be one of {', '.join(self.values)}")
        return value


@dataclass(frozen=True, slots=True)
class PathIn:
    """A file or folder inside ``root``, symbolic links followed; the command sees its full path."""

    root: str
    default: str | None = None

    @property
    def dash(self) -> bool:
        """A full path begins with a slash."""
        return False

    def fill(self, value: object) -> str:
        """The resolved path."""
        if not isinstance(value, str) or not value or _UNSAFE.search(value):
            raise Refusal("must be a path on one line")
        return inside(self.root, value)


def inside(root: str, path: str) -> str:
    """``path`` (taken from ``root`` if it is relative) with all links resolved, or Refusal."""
    top = os.path.realpath(root)
    real = os.path.realpath(os.path.join(top, path))
    if real != top and os.path.commonpath([top, real]) != top:
        raise Refusal("must lie inside the folder that was declared for it")
    return real


@dataclass(frozen=True, slots=True)
class Command:
    """One command that jobs may run.

    ``path`` is absolute. ``args`` are the arguments, with ``{name}`` where a slot goes; ``{{`` is a
    brace. ``env`` adds fixed variables, ``payload_env`` names those a payload may set. ``cwd`` is a
    fixed folder; None: what the payload says, else a fresh one. ``sha256`` pins the file itself.
    """

    path: str
    args: Sequence[str] = ()
    slots: Mapping[str, Slot] = field(default_factory=dict[str, Slot])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    payload_env: Sequence[str] = ()
    cwd: str | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        if not os.path.isabs(self.path):
            raise BadOption(f"Command({self.path!r}): path must be absolute")
        if isinstance(self.args, str):
            raise BadOption(f"Command({self.path!r}): args is a list of arguments, not one text")
        used = {name for item in self.args for _, name in _parts(item) if name is not None}
        if used != set(self.slots):
            odd = ", ".join(sorted(used ^ set(self.slots)))
            raise BadOption(
                f"Command({self.path!r}): args and slots do not name the same slots: {odd}"
            )

    def argv(self, values: Mapping[str, object]) -> list[str]:
        """The arguments for these values, or Refusal naming the slot."""
        unknown = [name for name in values if name not in self.slots]
        if unknown:
            known = ", ".join(self.slots) or "none"
            raise Refusal(f"`args` names a slot the command does not have; it has: {known}")
        filled = {name: _filled(name, slot, values) for name, slot in self.slots.items()}
        return [self.path, *(self._argument(item, filled) for item in self.args)]

    def _argument(self, item: str, filled: Mapping[str, str]) -> str:
        text = ""
        for literal, name in _parts(item):
            text += literal
            if name is None:
                continue
            value = filled[name]
            if not text and value.startswith("-") and not self.slots[name].dash:
                raise Refusal(f"`args.{name}` must not begin with a dash")
            text += value
        return text


def _filled(name: str, slot: Slot, values: Mapping[str, object]) -> str:
    value = values.get(name, slot.default)
    if value is None:
        raise Refusal(f"`args.{name}` is missing")
    try:
        return slot.fill(value)
    except Refusal as refusal:
        raise Refusal(f"`args.{name}` {refusal}") from None


def _parts(item: str) -> list[tuple[str, str | None]]:
    try:
        parsed = list(string.Formatter().parse(item))
    except ValueError as error:
        raise BadOption(f"Command: argument {item!r} is no template: {error}") from None
    for _, name, form, conversion in parsed:
        if name is not None and (form or conversion or not name.isidentifier()):
            raise BadOption(f"Command: argument {item!r}: a slot is written {{name}}")
    return [(literal, name) for literal, name, _, _ in parsed]
