"""The composition root: ``Forge``, the object that users create, and what it is made of.

Apart from the pull queue this is the only room that knows which backend is in use.
"""

from forge_jobs.app.forge import Forge
from forge_jobs.app.storage import open_storage

__all__ = ["Forge", "open_storage"]
