"""Makes and checks the request for one event."""

from . import payload
from .errors import BadOption
from .events import NewEvent, event_key, event_name
from .instant import Duration, seconds
from .names import key_text

DEFAULT_KEEP = "7d"


def new_event(
    name: str,
    value: object = None,
    *,
    key: object = None,
    dedupe_key: str | None = None,
    keep: Duration = DEFAULT_KEEP,
    what: str = "forge.send(...)",
) -> NewEvent:
    """The request for an event, or BadName, BadPayload, BadDuration, BadOption."""
    keep_s = seconds(keep, field="keep")
    if keep_s <= 0:
        raise BadOption(f"{what}: keep={keep!r} must be longer than nothing")
    return NewEvent(
        name=event_name(name),
        key=event_key(key),
        payload=payload.encode(
            value, limit=payload.MAX_RESULT_BYTES, what=f"{what}: the payload", fixed_limit=True
        ),
        dedupe_key=None if dedupe_key is None else key_text("dedupe key", dedupe_key),
        keep_s=keep_s,
    )
