"""SQL as text that people read: named blocks in ``.sql`` files, checked when they are loaded.

A file holds blocks of this form; the comment above a statement says why it is there and which index
serves it::

    -- name: oldest_pending
    -- Why this statement exists. Index: jobs_claim.
    SELECT min(run_at) FROM jobs WHERE status = 'pending';

Values are always bound; nothing here builds SQL from data. Places for values are numbered (``?1``)
where a value is used twice or out of order. Some drivers take offence at numbers, so a statement is
given out with plain ``?``; ``in_order`` lines the values up with them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

_NAME: Final = re.compile(r"-- name: ([a-z][a-z0-9_]*)")
_NUMBERED: Final = re.compile(r"\?(\d+)")

# For statements whose values do not simply follow each other: which value goes where.
ORDERS: Final[dict[str, tuple[int, ...]]] = {}


def in_order(statement: str, values: Sequence[Any]) -> Sequence[Any]:
    """The values of a statement, one for each of its places."""
    order = ORDERS.get(statement)
    return values if order is None else [values[place] for place in order]


class SqlText(Mapping[str, str]):
    """The statements of one file by name. An unknown name is an error where it is asked for."""

    def __init__(self, source: str, text: str) -> None:
        self._source = source
        self._blocks = dict(_blocks(source, text))

    @classmethod
    def load(cls, package: str, file: str) -> "SqlText":
        """Read a file that lies in a package."""
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
        yield name, _unnumbered(statement.removesuffix(";"))


def _unnumbered(statement: str) -> str:
    order = tuple(int(number) - 1 for number in _NUMBERED.findall(statement))
    plain = _NUMBERED.sub("?", statement)
    if _seen.setdefault(plain, order) != order:
        raise ValueError(f"two statements differ in the order of their values alone: {plain}")
    if order != tuple(range(len(order))):
        ORDERS[plain] = order
    return plain


_seen: dict[str, tuple[int, ...]] = {}


def _statement(text: str) -> str:
    """The text without comments; blanks folded, so that the same SQL is the same cache entry."""
    lines = (line.split("--", 1)[0].strip() for line in text.splitlines())
    return " ".join(line for line in lines if line)
