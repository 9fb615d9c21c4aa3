"""Names of pull queues, checked before the store is opened."""

import re
from typing import Final

from forge_jobs.core.errors import BadName

DEFAULT_TABLE: Final = "jobs"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_RULE: Final = (
    "use 1 to 63 letters, digits and '_', starting with a letter or '_' and not with 'sqlite_'"
)


def table_name(value: object) -> str:
    """The name of a pull queue, or BadName. Every such name is a valid queue name too."""
    if (
        not isinstance(value, str)
        or _NAME.fullmatch(value) is None
        or value.lower().startswith("sqlite_")
    ):
        raise BadName("table", value, _RULE)
    return value
