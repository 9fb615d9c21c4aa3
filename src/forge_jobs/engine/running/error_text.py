"""An exception as one bounded line of text: itself and its causes, joined by ``": "``."""

from typing import cast

from forge_jobs.engine.steps.signals import is_suspended
from forge_jobs.kit import redact

MAX_CHARS = 2_000
_MAX_LINKS = 8


def error_text(error: BaseException) -> str:
    """``TypeName: message`` of an exception and of what caused it.

    Never raises, whatever the exception does in its own ``__str__``.

    >>> error_text(ValueError("no such city"))
    'ValueError: no such city'
    """
    seen: list[int] = []
    parts: list[str] = []
    last_message = ""
    link: BaseException | None = error
    while link is not None and id(link) not in seen and len(seen) < _MAX_LINKS:
        seen.append(id(link))
        name, message = _one(link)
        part = f"{name}: {message}" if message else name
        # ``raise MailError(str(error)) from error`` must not say the same twice.
        if part not in ": ".join(parts) and (not message or message != last_message):
            parts.append(part)
        last_message = message
        link = _cause(link)
    return storable(": ".join(parts))


def storable(text: object) -> str:
    """Any message as text that every store takes: bounded, no NUL, no passwords of URLs."""
    try:
        clean = str(text)
    except BaseException:
        clean = f"<{type(text).__name__} that cannot be shown>"
    clean = clean.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    clean = redact.text(clean[: MAX_CHARS * 2])
    return clean if len(clean) <= MAX_CHARS else clean[: MAX_CHARS - 1] + "…"


def _one(error: BaseException) -> tuple[str, str]:
    name = type(error).__name__
    try:
        return name, str(error)
    except BaseException:
        return f"{name} (its message cannot be read)", ""


def _cause(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None:
        return error.__cause__
    if isinstance(error, BaseExceptionGroup):
        # "unhandled errors in a TaskGroup" says nothing; its first member does. The signal that
        # ends a run at a wait is no error.
        group = cast("BaseExceptionGroup[BaseException]", error)
        return next((one for one in group.exceptions if not is_suspended(one)), group.exceptions[0])
    return None if error.__suppress_context__ else error.__context__
