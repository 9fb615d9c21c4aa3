"""What a task declares about its jobs, and how that is combined with what a caller gives.

The rule is the same for every way in: an option that the caller gives comes first, then what the
task declares, then the default. A job that was stored before anybody could know its task has the
rare option ``undeclared``; the first worker that has the task completes it (``completed``). If
nobody named its queue either it has ``unrouted``, and moves to the queue that a worker publishes.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .errors import BadArguments, BadOption
from .instant import SECOND, Instant
from .job import ClaimedJob, LaneOrder, NewJob, merge_options
from .names import MAX_TAGS
from .payload import MAX_PAYLOAD_BYTES

# Rare options (docs/decisions/0107).
# ``undeclared``: the job was stored without the declaration of its task; the value lists the fields
# that the caller gave.
# ``unrouted``: it is in the default queue because nothing named another one. The stores have an
# index over this name (``JobStore.route``).
# ``no_timeout``: the caller turned the task's timeout off; a job without a value would get it.
UNDECLARED: Final = "undeclared"
UNROUTED: Final = "unrouted"
NO_TIMEOUT: Final = "no_timeout"
_SOFT: Final = "soft_timeout_s"
# Of a caller's timeout that is not longer than the task's soft timeout.
SOFT_SHARE: Final = 0.9

# The fields of a NewJob that a task can declare. Its queue is published apart (``store.queues``),
# limit key and track follow from its limits.
FIELDS: Final = (
    "priority", "max_attempts", "timeout_s", "tags", "lane", "order", "on_dead", "options"
)  # fmt: skip
# Those of which a stored job does not tell whether the caller gave them.
_GIVEN: Final = ("priority", "max_attempts", "timeout_s", "tags", "lane", "order")
_FORMAT: Final = 1
# Workers of two versions run side by side during a deploy: arguments of the other version count
# for that long after it was last published.
FORMER_S: Final = 86_400.0
_MAX_FORMER: Final = 4
_PLAIN: Final = NewJob(kind="any", queue="any")


class ArgumentNames(Struct, frozen=True, omit_defaults=True):
    """The names of a task's arguments. ``extras``: it takes others as well."""

    names: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    extras: bool = False

    def fit(self, given: Iterable[str]) -> bool:
        """Whether a call with these names fits."""
        names = set(given)
        return set(self.required) <= names and (self.extras or names <= set(self.names))

    def __str__(self) -> str:
        shown = [name if name in self.required else f"{name} = ..." for name in self.names]
        return "(" + ", ".join([*shown, "**"] if self.extras else shown) + ")"


class Declaration(Struct, frozen=True, kw_only=True):
    """What a task declares. ``template`` is a request without arguments. ``arguments`` None: any
    payload is taken. ``former`` are the arguments of other versions that may still run."""

    template: NewJob
    payload_limit: int = MAX_PAYLOAD_BYTES
    arguments: ArgumentNames | None = None
    former: tuple[ArgumentNames, ...] = ()

    def check_arguments(self, payload: object, *, remedy: str) -> None:
        """BadArguments if the payload fits no version of the task that may run it; ``remedy`` is
        how to store it all the same."""
        arguments = self.arguments
        if arguments is None:
            return
        kind = self.template.kind
        if not isinstance(payload, Mapping):
            raise BadArguments(
                f"task {kind!r}: the payload must be an object with its arguments by name: "
                f"it takes {arguments}. To store it all the same: {remedy}"
            )
        given = cast("Mapping[str, Any]", payload)
        if not any(one.fit(given) for one in (arguments, *self.former)):
            raise BadArguments(
                f"task {kind!r}: {_misfit(arguments, given)} It takes {arguments}. "
                f"To store it all the same: {remedy}"
            )


Declare = Callable[[], Declaration]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``, did you mean 'x'?`` for the nearest known name; a full stop without one."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {near[0]!r}?" if near else "."


def _misfit(arguments: ArgumentNames, given: Mapping[str, Any]) -> str:
    for name in given:
        if name not in arguments.names and not arguments.extras:
            return f"unexpected argument {name!r}{did_you_mean(name, arguments.names)}"
    missing = [name for name in arguments.required if name not in given]
    word = "argument" if len(missing) == 1 else "arguments"
    return f"missing {word} {', '.join(map(repr, missing))}."


# ------------------------------------------------------------------------------ given and declared


def with_fields(template: NewJob, fields: Mapping[str, Any], *, where: str = "job") -> NewJob:
    """A job like ``template``, with the checked fields that the caller gives on top.

    Rare options are merged one by one. BadOption for a soft timeout that is never reached; that of
    the task is shortened if the caller gives a timeout that leaves no time after it.
    """
    if not fields:
        return template
    own = fields.get("options")
    options = merge_options(template.options, own)
    if template.timeout_s is not None and "timeout_s" in fields and fields["timeout_s"] is None:
        options = {**(options or {}), NO_TIMEOUT: True}
    if own is None or _SOFT not in own:
        options = _shortened(options, fields.get("timeout_s"))
    changed = dict(fields)
    if options is not None:
        changed["options"] = options
    job = replace(template, **changed)
    check_soft_timeout(job.timeout_s, own, where=where)
    return job


def for_call(template: NewJob, queue: str, data: bytes) -> NewJob:
    """The template as the request for one job in that queue; ``data`` is its encoded payload."""
    return replace(template, queue=queue, payload=data)


def check_soft_timeout(
    timeout_s: float | None, options: Mapping[str, Any] | None, *, where: str
) -> None:
    """BadOption for a soft timeout that is never reached because the timeout ends the run first."""
    soft_s = None if options is None else options.get(_SOFT)
    if soft_s is not None and timeout_s is not None and soft_s >= timeout_s:
        raise BadOption(
            f"{where}: soft_timeout= ({soft_s:g} s) must be shorter than timeout= ({timeout_s:g} s)"
            ", which stops the handler: shorten soft_timeout= or lengthen timeout="
        )


def _shortened(
    options: Mapping[str, Any] | None, timeout_s: float | None
) -> Mapping[str, Any] | None:
    """The task's rare options for a job whose caller gives this timeout."""
    soft_s = None if options is None else options.get(_SOFT)
    if options is None or soft_s is None or timeout_s is None or soft_s < timeout_s:
        return options
    return {**options, _SOFT: SOFT_SHARE * timeout_s}


def own_or_default_timeout_s(
    own_s: float | None, options: Mapping[str, Any] | None, default_s: float | None
) -> float | None:
    """The time limit of a run: the job's own, else its handler's, unless the job has none."""
    if own_s is not None:
        return own_s
    return None if options is not None and options.get(NO_TIMEOUT) else default_s


def undeclared(job: NewJob, given: Iterable[str] = ()) -> NewJob:
    """The job, marked as stored without the declaration of its task; ``given`` are the fields that
    the caller set."""
    mark = [name for name in given if name in _GIVEN]
    return replace(job, options={**(job.options or {}), UNDECLARED: mark})


def unrouted(job: NewJob) -> NewJob:
    """The job, marked as stored in the default queue because nothing named a queue."""
    return replace(job, options={**(job.options or {}), UNROUTED: True})


def is_unrouted(options: Mapping[str, Any] | None) -> bool:
    """Whether a job with these rare options waits for the queue of its kind to be published."""
    return options is not None and UNROUTED in options


def routed(options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The rare options without the mark ``unrouted``; None if nothing is left."""
    return {name: value for name, value in (options or {}).items() if name != UNROUTED} or None


def completed(template: NewJob, job: ClaimedJob) -> NewJob:
    """The request that a job with the mark ``undeclared`` would have been, had its task been known.

    A field counts as given if the mark names it or its value is not the default. Tags that were not
    given by the caller (those of a schedule, of a hook) are added to the task's.
    """
    rest = routed(job.options) or {}
    mark = rest.pop(UNDECLARED, None)
    given = cast("list[str]", mark) if isinstance(mark, list) else []
    fields: dict[str, Any] = {}
    for name in ("priority", "max_attempts", "timeout_s", "tags"):
        value = getattr(job, name)
        if name in given or value != getattr(_PLAIN, name):
            fields[name] = value
    if "tags" not in given:
        fields["tags"] = tuple(dict.fromkeys((*template.tags, *job.tags)))[:MAX_TAGS]
    if "order" in given and "lane" not in given:
        fields |= {"lane": None, "order": LaneOrder.NONE}
    if rest:
        fields["options"] = rest
    return replace(_merged(template, fields), queue=job.queue, payload=job.payload, trace=job.trace)


def _merged(template: NewJob, fields: Mapping[str, Any]) -> NewJob:
    try:
        return with_fields(template, fields)
    except BadOption:
        # A soft timeout above the task's timeout: it is stored, and never reached.
        options = merge_options(template.options, fields.get("options"))
        return replace(template, **{**fields, "options": options})


def is_undeclared(options: Mapping[str, Any]) -> bool:
    """Whether a job with these rare options was stored without the declaration of its task."""
    return UNDECLARED in options


# ------------------------------------------------------------------------------- the stored record


def encode(declaration: Declaration, known: bytes | None, now: Instant) -> bytes | None:
    """The record to store; None if ``known``, the stored one, says the same.

    Fields that this release does not know stay as they are. Arguments of another version are kept
    in ``former``.
    """
    template = declaration.template
    before = _read(known)
    job = {
        field: value
        for field in FIELDS
        if (value := getattr(template, field)) != getattr(_PLAIN, field)
    }
    arguments = declaration.arguments
    record: dict[str, Any] = {
        "format": _FORMAT,
        "job": _known_kept(before.get("job"), FIELDS, job),
        "payload_limit": declaration.payload_limit,
        "arguments": arguments,
    }
    # As it will be read, so that it can be compared with what was read.
    record = _read(msgspec.json.encode({**before, **record}))
    if {**record, "former": None} == {**before, "former": None}:
        return None
    former = [one for one in _former(before, now) if one["arguments"] != record["arguments"]]
    old = before.get("arguments")
    if isinstance(old, dict) and old != record["arguments"]:
        former.insert(0, {"arguments": old, "at": now})
    return msgspec.json.encode({**record, "former": former[:_MAX_FORMER]})


def decode(kind: str, value: bytes, now: Instant) -> Declaration | None:
    """The declaration in a stored record; None for one that this release cannot read."""
    record = _read(value)
    try:
        template = msgspec.convert({**record["job"], "kind": kind, "queue": ""}, NewJob)
        names = record.get("arguments")
        return Declaration(
            template=template,
            payload_limit=msgspec.convert(record.get("payload_limit", MAX_PAYLOAD_BYTES), int),
            arguments=None if names is None else msgspec.convert(names, ArgumentNames),
            former=tuple(
                msgspec.convert(one["arguments"], ArgumentNames) for one in _former(record, now)
            ),
        )
    except (msgspec.ValidationError, KeyError, TypeError):
        return None


def _read(value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {}
    try:
        return msgspec.json.decode(value, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def _known_kept(before: object, known: Sequence[str], values: dict[str, Any]) -> dict[str, Any]:
    rest = cast("dict[str, Any]", before) if isinstance(before, dict) else {}
    return {**{name: rest[name] for name in rest if name not in known}, **values}


def _former(record: Mapping[str, Any], now: Instant) -> list[dict[str, Any]]:
    listed = record.get("former")
    if not isinstance(listed, list):
        return []
    found: list[dict[str, Any]] = []
    for one in cast("list[Any]", listed):
        if isinstance(one, dict):
            entry = cast("dict[str, Any]", one)
            at = entry.get("at")
            if isinstance(at, int) and now - at < FORMER_S * SECOND:
                found.append(entry)
    return found
