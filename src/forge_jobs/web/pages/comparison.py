"""The earlier time that the charts of a page are compared with: a day or a week before."""

from datetime import timedelta
from typing import Final

from msgspec import Struct

from forge_jobs.core.errors import BadOption

from .page import Params


class Comparison(Struct, frozen=True, kw_only=True):
    """An earlier time, and how a page names it."""

    name: str
    label: str
    ago: timedelta

    @property
    def suffix(self) -> str:
        """The end of the names of its series."""
        return f", {self.label}"


COMPARISONS: Final = {
    "day": Comparison(name="day", label="yesterday", ago=timedelta(days=1)),
    "week": Comparison(name="week", label="last week", ago=timedelta(days=7)),
}


def parse_comparison(params: Params) -> Comparison | None:
    """The comparison of these parameters; BadOption for an unknown one."""
    name = params.get("against", "")
    if name and name not in COMPARISONS:
        raise BadOption(f"against={name!r} is not one of {', '.join(COMPARISONS)}")
    return COMPARISONS.get(name)


def difference(now: int, earlier: int) -> str:
    """How a number compares with an earlier one, as a text: ``12 % more``."""
    if not earlier:
        return "none then" if now else "the same"
    percent = abs(now - earlier) * 100 / earlier
    if percent < 1:
        return "the same"
    word = "more" if now > earlier else "fewer"
    return f"{now / earlier:.1f} times" if percent > 200 else f"{percent:.0f} % {word}"
