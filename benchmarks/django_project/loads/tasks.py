"""The same tasks for every backend."""

import time
from pathlib import Path

from django.tasks import task


@task
def noop():
    """Nothing."""


@task
def stamp(sent, path):
    """One line per arrival: milliseconds since it was sent."""
    with Path(path).open("a") as stamps:
        stamps.write(f"{(time.monotonic() - sent) * 1_000!r}\n")
