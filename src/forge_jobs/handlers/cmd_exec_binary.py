"""Whether the file of a command is still the one that was meant."""

import hashlib
import os
import stat
from typing import Final

from .cmd_exec_payload import Refusal

_CHUNK: Final = 1 << 20


class Binaries:
    """Checks files before they are run; a digest is computed again only when the file changed."""

    def __init__(self) -> None:
        self._digests: dict[tuple[int, ...], str] = {}

    def checked(self, path: str, sha256: str | None) -> str:
        """The real path of a file that may be run. OSError when it is not there (it may come
        back), Refusal when it must not be run."""
        real = os.path.realpath(path)
        found = os.stat(real)
        if not stat.S_ISREG(found.st_mode):
            raise Refusal(f"{path} is not a regular file")
        if found.st_mode & stat.S_IWOTH:
            raise Refusal(f"{path} can be written by everybody: chmod o-w it")
        folder = os.stat(os.path.dirname(real))
        if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
            raise Refusal(f"the folder of {path} can be written by everybody: chmod o-w it")
        if sha256 is not None and self._digest(real, found) != sha256.lower():
            raise Refusal(f"{path} is not the file that was declared: its SHA-256 differs")
        return real

    def _digest(self, path: str, found: os.stat_result) -> str:
        sign = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        known = self._digests.get(sign)
        if known is None:
            digest = hashlib.sha256()
            with open(path, "rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
            known = self._digests[sign] = digest.hexdigest()
        return known
