"""Every route of the API."""

from typing import Final

from . import queues
from .route import Route, as_table

ROUTES: Final[tuple[Route, ...]] = tuple(as_table([*queues.routes.all]).values())
