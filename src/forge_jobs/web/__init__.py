"""Mission Control: pages and an HTTP API for operators, as one ASGI app.

``mission_control(forge, auth=…)`` mounts into any ASGI application; ``forge web`` serves it alone.
Pages are in ``pages`` and ``templates``, API routes in ``api``, authentication in ``access``.
"""

from .access.credentials import Credentials, from_environment
from .access.identity import Identity, Role
from .app import mission_control

__all__ = ["Credentials", "Identity", "Role", "from_environment", "mission_control"]
