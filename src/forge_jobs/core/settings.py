"""What a stored setting may be: the bounds of its names, its value and its life."""

import re
from typing import Final

from .errors import BadName, BadOption
from .names import key_text

MAX_VALUE: Final = 64 << 10
MIN_TTL_S: Final = 0.001
MAX_TTL_S: Final = 10 * 366 * 86_400.0
_NAMESPACE: Final = re.compile(r"[a-z][a-z0-9_.\-]{0,62}")
_NAMESPACE_RULE: Final = (
    "use 1 to 63 small letters, digits, '_', '-' or '.', starting with a letter"
)


def check_name(namespace: str, name: str) -> None:
    """BadName for a namespace or a name that not every backend can keep."""
    if _NAMESPACE.fullmatch(namespace) is None:
        raise BadName("namespace", namespace, _NAMESPACE_RULE)
    key_text("name", name)


def check_setting(namespace: str, name: str, value: bytes, ttl_s: float | None) -> None:
    """BadName or BadOption for a setting that cannot be kept; the value is never repeated."""
    check_name(namespace, name)
    if len(value) > MAX_VALUE:
        raise BadOption(
            f"the value of setting {namespace}/{name} has {len(value):,} bytes: "
            f"at most {MAX_VALUE:,} are kept"
        )
    if ttl_s is not None and not MIN_TTL_S <= ttl_s <= MAX_TTL_S:
        raise BadOption(
            f"ttl_s={ttl_s} of setting {namespace}/{name} must lie between {MIN_TTL_S} "
            f"and {MAX_TTL_S:.0f}"
        )
