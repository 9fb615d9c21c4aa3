"""What ``forge worker`` and its child processes import: the project, and its Forge object.

DJANGO_SETTINGS_MODULE names the project, FORGE_DJANGO_BACKEND the alias in TASKS.
"""

import os
from importlib import import_module
from typing import Final

if not import_module("django.apps").apps.ready:
    import_module("django").setup()

from .application import forge_of

forge: Final = forge_of(os.environ.get("FORGE_DJANGO_BACKEND"))
