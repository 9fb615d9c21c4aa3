"""The query line of lists of jobs: ``kind:send_mail to:ann@ error:timeout since:1h``.

A query is a row of ``name:value``, separated by spaces; a value with spaces is in double quotes.
All conditions must hold. A name that is none of ``NAMES`` is an argument of the task: ``to:ann@``
finds jobs whose argument ``to`` contains "ann@". ``arg.kind:x`` is the argument "kind". A word
without a name is looked for in the whole payload.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from .error_groups import group_id
from .errors import BadDuration, BadOption
from .instant import SECOND, Instant, from_datetime, seconds
from .selection import Filter
from .status import TERMINAL, JobStatus

NAMES: Final = (
    "kind", "queue", "status", "tag", "key", "parent", "error", "group", "payload", "worker",
    "since", "until",
)  # fmt: skip
ARGUMENT: Final = "arg."
MAX_QUERY: Final = 2_000
MAX_ARGUMENTS: Final = 8
_TOKEN: Final = re.compile(
    r'(?:(?P<name>[A-Za-z_][\w.\-]*):)?(?:"(?P<quoted>[^"]*)"|(?P<bare>\S*))'
)
_ARGUMENT_NAME: Final = re.compile(r"[A-Za-z_][\w\-]*(\.[\w\-]+)*")
_EXAMPLE: Final = "kind:send_mail to:ann@ since:1h"


class JobQuery(Struct, frozen=True, kw_only=True):
    """A parsed query. ``fields`` has the text of each of ``NAMES`` that is given, ``arguments``
    pairs of an argument and the text that it contains."""

    fields: Mapping[str, str] = {}
    arguments: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """The query line that says the same."""
        pairs = [(name, self.fields[name]) for name in NAMES if name in self.fields]
        pairs += [
            (f"{ARGUMENT}{name}" if name in NAMES else name, text) for name, text in self.arguments
        ]
        return " ".join(f"{name}:{_quoted(value)}" for name, value in pairs)

    @property
    def statuses(self) -> tuple[JobStatus, ...]:
        """The states; none means every state."""
        names = [part.strip().lower() for part in self.fields.get("status", "").split(",")]
        found: list[JobStatus] = []
        for name in filter(None, names):
            state = "running" if name == "in_progress" else name
            if state not in tuple(JobStatus):
                raise BadOption(f"status:{name} is no state: use {', '.join(JobStatus)}")
            found.append(JobStatus(state))
        return tuple(dict.fromkeys(found))

    @property
    def looks_into_jobs(self) -> bool:
        """Whether jobs must be read one by one: no index holds texts of payloads."""
        return bool(self.arguments or "payload" in self.fields)

    def with_fields(self, values: Mapping[str, str]) -> "JobQuery":
        """The query with these fields added; BadOption where one says something else already."""
        fields = dict(self.fields)
        for name, value in values.items():
            if value and fields.setdefault(name, value) != value:
                raise BadOption(
                    f"{name}:{value} and {name}:{fields[name]} exclude each other: give one"
                )
        return replace(self, fields=fields)

    def to_filter(self, now: Instant, statuses: tuple[JobStatus, ...] = ()) -> Filter:
        """The filter of the query. ``statuses`` are those of a list that has them fixed.

        ``since`` and ``until`` are about the end of jobs where all wanted ones have ended, else
        about their enqueue.
        """
        wanted = statuses or self.statuses
        since, until = (_moment(name, self.fields.get(name), now) for name in ("since", "until"))
        ended = bool(wanted) and all(status in TERMINAL for status in wanted)
        return Filter(
            queue=self.fields.get("queue"),
            kind=self.fields.get("kind"),
            statuses=wanted,
            tag=self.fields.get("tag"),
            dedupe_key=self.fields.get("key"),
            parent=self.fields.get("parent"),
            error=self.fields.get("error"),
            payload=self.fields.get("payload"),
            group=group_id(self.fields["group"]) if "group" in self.fields else None,
            arguments=self.arguments,
            enqueued_from=None if ended else since,
            enqueued_until=None if ended else until,
            finished_from=since if ended else None,
            finished_until=until if ended else None,
        )


def parse(text: str) -> JobQuery:
    """Parse a query line; BadOption names the part that is wrong, and the remedy."""
    if len(text) > MAX_QUERY:
        raise BadOption(f"the query has {len(text):,} characters: at most {MAX_QUERY:,} are read")
    if text.count('"') % 2:
        raise BadOption(f'the query {text!r} has a quote without its end: add a "')
    fields: dict[str, str] = {}
    arguments: list[tuple[str, str]] = []
    for name, value in _tokens(text):
        if not value:
            raise BadOption(f"{name}: has no value: write {name}:VALUE, or leave it out")
        if name in NAMES:
            if name in fields:
                raise BadOption(f"{name}: is there twice ({fields[name]} and {value}): keep one")
            fields[name] = value
        else:
            arguments.append((_argument_name(name), value))
    if len(arguments) > MAX_ARGUMENTS:
        raise BadOption(f"{len(arguments)} arguments are too many: use at most {MAX_ARGUMENTS}")
    query = JobQuery(fields=fields, arguments=tuple(arguments))
    _ = query.statuses
    for name in ("since", "until"):
        _moment(name, fields.get(name), 0)
    return query


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        found = _TOKEN.match(text, position)
        assert found is not None
        value = found["bare"] if found["quoted"] is None else found["quoted"]
        if found["name"] is None and not value:
            raise BadOption(f'"" in the query says nothing: use for example {_EXAMPLE}')
        yield found["name"] or "payload", value
        position = found.end()


def _argument_name(name: str) -> str:
    if not name.startswith(ARGUMENT):
        near = get_close_matches(name.lower(), NAMES, 1, 0.75)
        if near:
            raise BadOption(
                f"{name}: is no filter: did you mean {near[0]}:? "
                f"For an argument of that name write {ARGUMENT}{name}:"
            )
    plain = name.removeprefix(ARGUMENT)
    if _ARGUMENT_NAME.fullmatch(plain) is None:
        raise BadOption(f"{name}: is no name of an argument: use for example to: or customer.id:")
    return plain


def _moment(name: str, text: str | None, now: Instant) -> Instant | None:
    """An instant from a span before now, or from a time; one without a zone is UTC."""
    if text is None:
        return None
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - round(seconds(text, field=name) * SECOND)
        except BadDuration:
            raise BadOption(
                f"{name}:{text} is no time: use a span such as 30m, 1h or 2d, "
                "or a time such as 2026-01-31T09:00"
            ) from None
    return from_datetime(value if value.tzinfo else value.replace(tzinfo=UTC), field=name)


def _quoted(value: str) -> str:
    return f'"{value}"' if not value or any(char.isspace() for char in value) else value
