"""Failed ticks of services that no injected fault explains.

The loop of a service survives every error. Without this, a service that can never run would leave
the simulation green.
"""

import logging
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from forge_jobs.core.errors import ForgeError


class _ServiceErrors(logging.Handler):
    """Collects failed ticks of services whose cause is no fault of the store."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []
        self._expected = frozenset({"TimeoutError", *_names(ForgeError)})

    def emit(self, record: logging.LogRecord) -> None:
        error = str(record.__dict__.get("error", ""))
        if error.partition("(")[0] not in self._expected:
            self.found.append(f"{record.__dict__.get('service')}: {error}")


def _names(error: type[ForgeError]) -> Iterator[str]:
    yield error.__name__
    for below in error.__subclasses__():
        yield from _names(below)


@contextmanager
def service_errors() -> Generator[list[str], None, None]:
    """The failed ticks meanwhile: the service and its error, as text."""
    log, handler = logging.getLogger("forge_jobs.service"), _ServiceErrors()
    level, propagate = log.level, log.propagate
    log.setLevel(logging.WARNING)
    log.addHandler(handler)
    log.propagate = False
    try:
        yield handler.found
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate
