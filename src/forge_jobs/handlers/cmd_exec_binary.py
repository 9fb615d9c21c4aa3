"""Checks the file of a command before it is run: type, permissions and SHA-256."""

import hashlib
import os
import stat
from typing import Final

from .cmd_exec_payload import Refusal

_READ_BYTES: Final = 1 << 20


class Binaries:
    """Checks the files of commands. Caches digests until a file changes."""

    def __init__(self) -> None:
        self._digests: dict[tuple[int, ...], str] = {}

    def checked(self, path: str, sha256: str | None) -> str:
        """The real path of a file that may be run. Raises OSError if it does not exist (it may
        return later) and Refusal if it must not be run."""
        real = os.path.realpath(path)
        status = os.stat(real)
        if not stat.S_ISREG(status.st_mode):
            raise Refusal(f"{path} is not a regular file")
        if status.st_mode & stat.S_IWOTH:
            raise Refusal(f"{path} can be written by everybody: chmod o-w it")
        folder = os.stat(os.path.dirname(real))
        if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
            raise Refusal(f"the folder of {path} can be written by everybody: chmod o-w it")
        if sha256 is not None and self._digest(real, status) != sha256.lower():
            raise Refusal(f"{path} is not the file that was declared: its SHA-256 differs")
        return real

    def _digest(self, path: str, status: os.stat_result) -> str:
        version = (
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )
        cached = self._digests.get(version)
        if cached is None:
            digest = hashlib.sha256()
            with open(path, "rb") as file:
                while chunk := file.read(_READ_BYTES):
                    digest.update(chunk)
            cached = self._digests[version] = digest.hexdigest()
        return cached
