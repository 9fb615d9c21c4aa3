"""The composition root: Forge, the object a user holds, and the pieces it is made of.

The only room that knows which backend is in use.
"""

from forge_jobs.app.forge import Forge
from forge_jobs.app.storage import open_storage

__all__ = ["Forge", "open_storage"]
