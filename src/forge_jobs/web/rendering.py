"""Templates: the whole page for a first visit, its main part alone for everything after."""

from datetime import datetime
from functools import lru_cache
from typing import Any, Final, cast

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from forge_jobs.core.status import JobStatus

MAIN: Final = "main"


@lru_cache(maxsize=1)
def environment() -> Environment:
    """One environment for all: everything is escaped, and a missing name is an error."""
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
        moment=moment,
        until=until,
        span=span,
        number=number,
        size=size,
        json=as_json,
        pretty=pretty,
        brief=brief,
    )
    untyped.globals["STATUSES"] = tuple(JobStatus)
    return env


def whole(template: str, shown: dict[str, Any]) -> str:
    """The page with its frame."""
    return environment().get_template(template).render(shown)


def main_part(template: str, shown: dict[str, Any]) -> str:
    """What changes while the page is open."""
    found = environment().get_template(template)
    return "".join(found.blocks[MAIN](found.new_context(shown)))


def moment(at: datetime | None) -> Markup:
    """A time element; the page's script shows it as "3 min ago" and keeps it true."""
    if at is None:
        return Markup('<span class="none">–</span>')
    text = at.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}">{} UTC</time>').format(at.isoformat(), text)


def until(at: datetime | None) -> Markup:
    """The same for an end that is awaited: once it has passed the script shows "now"."""
    return Markup(str(moment(at)).replace("<time ", "<time data-until ", 1))


def span(seconds: float | None) -> str:
    """A duration in two units at most: ``2h 46m``."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    parts: list[str] = []
    for name, length in units:
        count, whole = divmod(whole, length)
        if count:
            parts.append(f"{count}{name}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def brief(seconds: float | None) -> str:
    """A duration as a form takes it: ``7d``, ``90s``; empty for none."""
    if seconds is None:
        return ""
    for name, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds / length:g}{name}"
    return f"{seconds:g}s"


def number(value: float | None) -> str:
    """``12,345``."""
    return "–" if value is None else f"{value:,}"


def size(count: int | None) -> str:
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
    """JSON for a data attribute; escaping it for HTML is the template's part."""
    return msgspec.json.encode(value).decode()


def pretty(value: object) -> str:
    """JSON for people."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
