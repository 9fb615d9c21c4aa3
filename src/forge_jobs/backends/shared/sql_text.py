"""Loads named SQL statements from ``.sql`` files and checks the files' form.

A file holds blocks of this form; the comment above a statement gives its purpose and the index that
serves it::

    -- name: oldest_pending
    -- Why this statement exists. Index: jobs_claim.
    SELECT min(run_at) FROM jobs WHERE status = 'pending';

Values are always bound; nothing here builds SQL from data. Placeholders are numbered (``?1``) where
a value is used twice or out of order. Some drivers reject numbered placeholders, so a statement is
returned with plain ``?``; ``ordered_values`` arranges the values for it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

_NAME: Final = re.compile(r"-- name: ([a-z][a-z0-9_]*)")
_NUMBERED: Final = re.compile(r"\?(\d+)")

# For statements that use values twice or out of order: the index of the value per placeholder.
VALUE_ORDERS: Final[dict[str, tuple[int, ...]]] = {}


def ordered_values(statement: str, values: Sequence[Any]) -> Sequence[Any]:
    """The values of a statement, one per placeholder."""
    order = VALUE_ORDERS.get(statement)
    return values if order is None else [values[index] for index in order]


class SqlText(Mapping[str, str]):
    """The statements of one file by name. Reading an unknown name raises LookupError."""

    def __init__(self, source: str, text: str) -> None:
        self._source = source
        self._blocks = dict(_blocks(source, text))

    @classmethod
    def load(cls, package: str, file: str) -> "SqlText":
        """Read a file of a package."""
        return cls(f"{package}/{file}", files(package).joinpath(file).read_text(encoding="utf-8"))

    def __getitem__(self, name: str) -> str:
        try:
            return self._blocks[name]
        except KeyError:
            raise LookupError(f"{self._source} has no statement named {name!r}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)


def _blocks(source: str, text: str) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    head, *parts = re.split(r"(?m)^(?=-- name:)", text)
    if _statement(head):
        raise ValueError(f"{source} holds a statement before its first name")
    for part in parts:
        first, _, rest = part.partition("\n")
        named = _NAME.fullmatch(first.strip())
        if named is None:
            raise ValueError(f"{source} has a bad name line: {first.strip()!r}")
        name = named[1]
        if name in seen:
            raise ValueError(f"{source} has two statements named {name!r}")
        seen.add(name)
        if not rest.lstrip().startswith("--"):
            raise ValueError(f"{source}: {name!r} does not say why it exists")
        statement = _statement(rest)
        if not statement.endswith(";") or statement.count(";") != 1:
            raise ValueError(f"{source}: {name!r} must be one statement that ends with ';'")
        yield name, _without_numbers(statement.removesuffix(";"))


def _without_numbers(statement: str) -> str:
    order = tuple(int(number) - 1 for number in _NUMBERED.findall(statement))
    plain = _NUMBERED.sub("?", statement)
    if _known_orders.setdefault(plain, order) != order:
        raise ValueError(f"two statements differ in the order of their values alone: {plain}")
    if order != tuple(range(len(order))):
        VALUE_ORDERS[plain] = order
    return plain


_known_orders: dict[str, tuple[int, ...]] = {}


def _statement(text: str) -> str:
    """The text without comments and with single spaces, so that equal SQL is one cache entry."""
    lines = (line.split("--", 1)[0].strip() for line in text.splitlines())
    return " ".join(line for line in lines if line)
