"""``Command``: a declared command of ``cmd_exec``: its file, an argument template and typed slots.

A payload names a command and fills its slots. It never reaches a shell, cannot add an argument, and
cannot turn an argument into an option.
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
_MAX_TEXT_LENGTH: Final = 4_096


class ArgumentSlot(Protocol):
    """A placeholder in a command's arguments that a payload fills."""

    @property
    def default(self) -> str | int | float | None:
        """The value if the payload has none. None: the payload must have one."""
        ...

    @property
    def dash(self) -> bool:
        """Whether the value may make an argument begin with a dash."""
        ...

    def fill(self, value: object) -> str:
        """The value as text. Raises Refusal with the rule that it breaks."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Any text on one line; ``pattern`` must match all of it."""

    pattern: str | None = None
    longest: int = _MAX_TEXT_LENGTH
    dash: bool = False
    default: str | None = None

    def fill(self, value: object) -> str:
        """The text itself."""
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
        """Always: the values were declared in code."""
        return True

    def fill(self, value: object) -> str:
        """The value itself."""
        if not isinstance(value, str) or value not in self.values:
            raise Refusal(f"must be one of {', '.join(self.values)}")
        return value


@dataclass(frozen=True, slots=True)
class PathIn:
    """A file or folder inside ``root`` after symbolic links are resolved. The argument is its full
    path."""

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
    """``path`` (relative to ``root``) with all symbolic links resolved. Raises Refusal if it lies
    outside ``root``."""
    top = os.path.realpath(root)
    real = os.path.realpath(os.path.join(top, path))
    if real != top and os.path.commonpath([top, real]) != top:
        raise Refusal("must lie inside the folder that was declared for it")
    return real


@dataclass(frozen=True, slots=True)
class Command:
    """One command that jobs may run.

    ``path`` is absolute. ``args`` are the arguments, with ``{name}`` for a slot and ``{{`` for a
    brace. ``env`` adds fixed variables, ``payload_env`` names those a payload may set. ``cwd`` is a
    fixed folder; None: the payload's, else a fresh one. ``sha256`` pins the content of the file.
    """

    path: str
    args: Sequence[str] = ()
    slots: Mapping[str, ArgumentSlot] = field(default_factory=dict[str, ArgumentSlot])
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
            differing = ", ".join(sorted(used ^ set(self.slots)))
            raise BadOption(
                f"Command({self.path!r}): args and slots do not name the same slots: {differing}"
            )

    def argv(self, values: Mapping[str, object]) -> list[str]:
        """The argument vector for these values. Raises Refusal with the slot's name."""
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


def _filled(name: str, slot: ArgumentSlot, values: Mapping[str, object]) -> str:
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
