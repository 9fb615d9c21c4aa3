"""The API call with the effect of a form, as a curl command with a placeholder for the token."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from msgspec import structs

from forge_jobs.core.instant import to_datetime
from forge_jobs.core.selection import Filter

Fields = Mapping[str, str]


class _ApiCall(NamedTuple):
    """A form's path, and the call with the same effect. ``{…}`` in its body is a field of the
    form."""

    form: str
    method: str
    path: str
    body: Mapping[str, Any] | None = None


# What the filter of the API has, and its value for any job.
_TAKEN: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("queue", "kind", "tag", "dedupe_key", "error", "enqueued_from"), None),
    "enqueued_until": None,
    "statuses": (),
}
# Forms of many fields (schedules, alert rules, filters) are left to the API reference.
_CALLS: Final = (
    _ApiCall("/act/alerts/{name}/test", "POST", "/alerts/rules/{name}/test"),
    _ApiCall(
        "/act/alerts/{name}/enable", "POST", "/alerts/rules/{name}/enabled", {"enabled": True}
    ),
    _ApiCall(
        "/act/alerts/{name}/disable", "POST", "/alerts/rules/{name}/enabled", {"enabled": False}
    ),
    _ApiCall("/act/alerts/{name}/remove", "DELETE", "/alerts/rules/{name}"),
    _ApiCall("/act/cron/{name}/trigger", "POST", "/cron/{name}/trigger"),
    _ApiCall("/act/cron/{name}/enable", "POST", "/cron/{name}/enabled", {"enabled": True}),
    _ApiCall("/act/cron/{name}/disable", "POST", "/cron/{name}/enabled", {"enabled": False}),
    _ApiCall("/act/cron/{name}/delete", "DELETE", "/cron/{name}"),
    _ApiCall("/act/errors/{id}/resolve", "POST", "/errors/{id}/resolve"),
    _ApiCall("/act/errors/{id}/reopen", "POST", "/errors/{id}/reopen"),
    _ApiCall("/act/jobs/retry", "POST", "/jobs/retry", {"ids": "{ids}"}),
    _ApiCall("/act/jobs/cancel", "POST", "/jobs/cancel", {"ids": "{ids}"}),
    _ApiCall("/act/jobs/delete", "POST", "/jobs/delete", {"ids": "{ids}"}),
    _ApiCall("/act/limits/drain", "POST", "/rates/drain", {"scope": "{name}"}),
    _ApiCall("/act/limits/clear", "POST", "/scopes/open", {"scope": "{name}"}),
    _ApiCall("/act/limits/lift", "PUT", "/limits/{field}", {"lift": True}),
    _ApiCall("/act/limits/reset", "POST", "/limits/{field}/reset"),
    _ApiCall("/act/queues/{name}/pause", "POST", "/queue/{name}/paused", {"paused": True}),
    _ApiCall("/act/queues/{name}/resume", "POST", "/queue/{name}/paused", {"paused": False}),
    _ApiCall("/act/queues/{name}/unthrottle", "POST", "/queue/{name}/unthrottle"),
    _ApiCall("/act/queues/{name}/slots", "POST", "/queue/{name}/max-workers", {"slots": "{slots}"}),
    _ApiCall("/act/workers/{host_id}/quiet", "POST", "/workers/{host_id}/quiet", {"quiet": True}),
    _ApiCall(
        "/act/workers/{host_id}/unquiet", "POST", "/workers/{host_id}/quiet", {"quiet": False}
    ),
    _ApiCall("/act/operations/{id}/stop", "POST", "/bulk/{id}/stop"),
)
_PATTERNS: Final = tuple(
    (re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", call.form)), call) for call in _CALLS
)


def curl_command(form_path: str, fields: Fields) -> str:
    """The curl command for what a form at ``form_path`` does; empty if there is no such call. The
    token is ``$FORGE_TOKEN``, the address with the mount path ``$FORGE_WEB_URL``."""
    path = form_path[max(0, form_path.find("/act/")) :]
    for pattern, call in _PATTERNS:
        match = pattern.fullmatch(path)
        if match is not None:
            try:
                return _command(call, match.groupdict(), fields)
            except (KeyError, ValueError):
                return ""
    return ""


def bulk_curl(action: str, wanted: Filter) -> str:
    """The curl command that starts an action on all jobs of a filter; empty if the filter has a
    condition that the API does not take."""
    times = (("from", wanted.enqueued_from), ("to", wanted.enqueued_until))
    given: dict[str, Any] = {
        "queues": [] if wanted.queue is None else [wanted.queue],
        "kinds": [] if wanted.kind is None else [wanted.kind],
        "statuses": [str(status) for status in wanted.statuses],
        **{name: getattr(wanted, name) for name in ("tag", "dedupe_key", "error")},
        **{name: None if at is None else to_datetime(at).isoformat() for name, at in times},
    }
    if structs.replace(wanted, **_TAKEN) != Filter():
        return ""
    filter = {name: value for name, value in given.items() if value}
    return _request("POST", "/bulk", {"action": action, "filter": filter})


def _command(call: _ApiCall, parameters: Mapping[str, str], fields: Fields) -> str:
    body = None if call.body is None else {k: _filled(v, fields) for k, v in call.body.items()}
    path = call.path.replace("{field}", quote(fields.get("name", ""), safe=":"))
    for name, value in parameters.items():
        path = path.replace(f"{{{name}}}", quote(unquote(value), safe=""))
    return _request(call.method, path, body)


def _request(method: str, path: str, body: Mapping[str, Any] | None) -> str:
    parts = ["curl", "-X", method, '-H "Authorization: Bearer $FORGE_TOKEN"']
    if body is not None:
        parts += ["-H 'content-type: application/json'", "-d", shlex.quote(json.dumps(body))]
    return " ".join([*parts, f'"$FORGE_WEB_URL/api{path}"'])


def _filled(value: Any, fields: Fields) -> Any:
    match value:
        case "{ids}":
            return fields["ids"].split(",")
        case "{slots}":
            return int(fields["slots"])
        case "{name}":
            return fields["name"]
        case _:
            return value
