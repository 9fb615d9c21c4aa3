"""Closes the stores before Django drops its test databases: Postgres drops none that is in use."""

import functools
from collections.abc import Callable
from typing import Any, Final

from .django_api import mail

_MARK: Final = "closes_forge_stores"


def close_before_teardown(creation: Any, close: Callable[[], None]) -> None:
    """Call ``close`` before the test databases of this class are dropped; no effect outside tests.

    Django tells nobody that it is about to drop them, so its method is wrapped, once.
    """
    # setup_test_environment makes it, and nothing else does.
    if not hasattr(mail, "outbox"):
        return
    destroy: Any = creation.destroy_test_db
    if hasattr(destroy, _MARK):
        return

    @functools.wraps(destroy)
    def close_and_destroy(self: Any, *args: Any, **kwargs: Any) -> Any:
        close()
        return destroy(self, *args, **kwargs)

    setattr(close_and_destroy, _MARK, True)
    creation.destroy_test_db = close_and_destroy
