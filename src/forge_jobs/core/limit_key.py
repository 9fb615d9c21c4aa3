"""What binds a job, read from its own arguments: the key by which its task is limited."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from .errors import BadOption
from .job import NewJob
from .limits import Limit, key_bucket

_PATH: Final = re.compile(r"args(\.[A-Za-z_][A-Za-z0-9_]*)+")
_LONGEST: Final = 200


def check_path(per: object, *, where: str) -> str:
    """``per`` itself, or BadOption."""
    if not isinstance(per, str) or _PATH.fullmatch(per) is None:
        raise BadOption(
            f"{where}: per={per!r} must name an argument, for example per='args.host' or "
            "per='args.user.id'"
        )
    return per


def first_name(per: str) -> str:
    """The argument that a path begins with."""
    return per.split(".")[1]


def limit_key(kind: str, per: str, payload: bytes) -> str:
    """The limit key of a job with these arguments. What is not there counts as null; a long or
    unprintable value is represented by its digest."""
    value: Any = msgspec.json.decode(payload)
    for name in per.split(".")[1:]:
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if not 0 < len(text) <= _LONGEST or not text.isprintable():
        text = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return key_bucket(kind, text)


def limit_fields(kind: str, limit: Limit | None, payload: bytes) -> dict[str, Any]:
    """The fields of a NewJob that follow from its task's limit."""
    if limit is None:
        return {}
    fields: dict[str, Any] = {"track": True} if limit.tracked else {}
    if limit.per is not None and limit.concurrency is not None:
        fields["limit_key"] = limit_key(kind, limit.per, payload)
    return fields


def apply_limit(job: NewJob, limit: Limit | None) -> NewJob:
    """The job with what its task's limit means for it; a key that it has is replaced."""
    fields = limit_fields(job.kind, limit, job.payload)
    return msgspec.structs.replace(job, **fields) if fields else job
