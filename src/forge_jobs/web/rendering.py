"""The Jinja environment, its filters, and rendering of a page or of its main block alone."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, cast

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from forge_jobs.core.status import JobStatus

from .curl import curl_command
from .json_markup import marked_json

MAIN: Final = "main"


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The shared environment: autoescaping is on, and an undefined name is an error."""
    env = Environment(
        loader=PackageLoader("forge_jobs.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    untyped = cast("Any", env)
    untyped.filters.update(
        moment=time_element,
        at_time=timestamp_datetime,
        until=countdown_element,
        full=full_element,
        span=duration,
        number=grouped,
        size=byte_size,
        rate=rate,
        json=as_json,
        pretty=indented_json,
        marked=marked_json,
        brief=duration_input,
    )
    untyped.globals["STATUSES"] = tuple(JobStatus)
    untyped.globals["curl"] = curl_command
    return env


def render_page(template: str, variables: dict[str, Any]) -> str:
    """The complete page."""
    return environment().get_template(template).render(variables)


def render_main(template: str, variables: dict[str, Any]) -> str:
    """The ``main`` block alone, which live updates replace."""
    compiled = environment().get_template(template)
    return "".join(compiled.blocks[MAIN](compiled.new_context(variables)))


def time_element(at: datetime | None) -> Markup:
    """A ``time`` element; the script shows it as "3 min ago" and updates it."""
    if at is None:
        return Markup('<span class="none">–</span>')
    text = at.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}">{} UTC</time>').format(at.isoformat(), text)


def timestamp_datetime(at: float) -> datetime:
    """The time of seconds since 1970."""
    return datetime.fromtimestamp(at, UTC)


def countdown_element(at: datetime | None) -> Markup:
    """A ``time`` element for an expected end: once it has passed the script shows "now"."""
    return Markup(str(time_element(at)).replace("<time ", "<time data-until ", 1))


def full_element(at: datetime) -> Markup:
    """A ``time`` element that is shown as date and time, in the zone of the reader."""
    return Markup(str(time_element(at)).replace("<time ", "<time data-full ", 1))


def duration(seconds: float | None) -> str:
    """A duration in two units at most: ``2 h 46 min``."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    rest = int(seconds)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    parts: list[str] = []
    for name, length in units:
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def duration_input(seconds: float | None) -> str:
    """A duration in the syntax of form fields: ``7d``, ``90s``; empty for None."""
    if seconds is None:
        return ""
    for name, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds / length:g}{name}"
    return f"{seconds:g}s"


def grouped(value: float | None) -> str:
    """A number with thousands separators: ``12,345``."""
    return "–" if value is None else f"{value:,}"


def rate(per_s: float) -> str:
    """How often, in the first unit in which it is at least one: ``12/s``, ``4/min``, ``2/h``."""
    unit, often = "h", per_s * 3_600
    for shorter, length in (("min", 60), ("s", 1)):
        if per_s * length >= 1:
            unit, often = shorter, per_s * length
    return f"{often:,.0f}/{unit}" if often >= 100 else f"{often:.3g}/{unit}" if often else "0"


def byte_size(count: int | None) -> str:
    """Bytes in binary units."""
    if count is None:
        return "–"
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return "–"


def as_json(value: object) -> str:
    """JSON for a data attribute; the template escapes it."""
    return msgspec.json.encode(value).decode()


def indented_json(value: object) -> str:
    """JSON with indentation, for display."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
