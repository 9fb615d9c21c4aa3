"""Lists of queues with their slots: ``mail:20,video``, ``["mail:20"]`` or ``{"mail": 20}``."""

from collections.abc import Iterable, Mapping
from typing import cast

from forge_jobs.core import names
from forge_jobs.core.errors import BadConfig, BadName

DEFAULT_QUEUE_WORKERS = 10
MAX_SLOTS = 100_000


def parse_queues(
    entries: Iterable[str] | Mapping[str, int],
    *,
    source: str = "queues",
    slots: Mapping[str, int] | None = None,
    default: int = DEFAULT_QUEUE_WORKERS,
) -> dict[str, int]:
    """Names and slots from ``["mail:20", "video"]`` or ``{"mail": 20}``.

    A queue without a number gets that of ``slots``, else ``default``. One that is named twice
    counts once, unless with two different numbers. Raises BadConfig that names ``source``, the
    entry and what it should look like.
    """
    if isinstance(entries, Mapping):
        pairs: list[tuple[str, int | None]] = list(cast("Mapping[str, int]", entries).items())
    else:
        texts = entries.split(",") if isinstance(entries, str) else entries
        pairs = [_entry(text, source) for text in texts]
    queues: dict[str, int] = {}
    named: dict[str, int | None] = {}
    for name, count in pairs:
        try:
            names.queue_name(name)
        except BadName as error:
            raise BadConfig(f"{source}: {error}") from error
        earlier = named.get(name)
        if earlier is not None and count is not None and earlier != count:
            raise BadConfig(
                f"{source}: queue {name!r} is given {earlier} and {count} slots; name it once"
            )
        named[name] = count = earlier if count is None else count
        if count is None:
            count = (slots or {}).get(name, default)
        queues[name] = slot_count(count, source=f"{source}: queue {name!r}")
    return queues


def slot_count(value: object, *, source: str) -> int:
    """A number of slots, or BadConfig that names ``source``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_SLOTS:
        raise BadConfig(f"{source} has slots {value!r}: use a whole number from 0 to {MAX_SLOTS:,}")
    return value


def _entry(entry: object, source: str) -> tuple[str, int | None]:
    if not isinstance(entry, str):
        raise BadConfig(f"{source}: {entry!r} is no queue: write 'mail' or 'mail:20'")
    name, colon, count = (part.strip() for part in entry.partition(":"))
    if not colon:
        return name, None
    if not (count.isascii() and count.isdigit()):
        raise BadConfig(f"{source}: {entry!r} has no number of slots after ':': write 'mail:20'")
    return name, int(count)
