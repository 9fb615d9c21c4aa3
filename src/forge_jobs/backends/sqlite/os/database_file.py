"""The files of a database: its path, the directory beside it, and checks of the file system.

Once the database file exists it is never opened here: closing a descriptor of it would drop the
locks that SQLite holds for this whole process.
"""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forge_jobs.core.errors import NotWritable

_NETWORK: Final = frozenset(
    {
        "9p", "afpfs", "afs", "ceph", "cifs", "coda", "davfs", "fuse.cephfs", "fuse.davfs2",
        "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "glusterfs",
        "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "prl_fs", "smb", "smb2", "smb3", "smbfs",
        "vboxsf", "virtiofs", "webdav",
    }
)  # fmt: skip
_MOUNTS: Final = "/proc/self/mounts"


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """The files of one database."""

    path: str

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> "DatabaseFile":
        """The database at a path; symbolic links are resolved."""
        return cls(os.path.realpath(os.fspath(path)))

    @property
    def directory(self) -> str:
        """The directory beside the database with lock files, notify sockets and liveness files."""
        return f"{self.path}-forge"

    @property
    def wal(self) -> str:
        return f"{self.path}-wal"

    def part(self, *names: str) -> str:
        """A path within the directory beside the database."""
        return os.path.join(self.directory, *names)

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def identity(self) -> tuple[int, int] | None:
        """Device and inode, to detect that the file was removed or replaced."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def prepare(self) -> None:
        """Create the file and the directory beside it, accessible to their owner only.

        Raises NotWritable if the path cannot be written or is on a network file system.
        """
        parent = os.path.dirname(self.path)
        if not os.path.isdir(parent):
            raise NotWritable(f"{parent} is not a directory: create it, or choose another path")
        self._refuse_network(parent)
        if os.path.isdir(self.path):
            raise NotWritable(f"{self.path} is a directory: name a file in it")
        try:
            with suppress(FileExistsError):
                # O_EXCL: only a file that no connection has open yet may be opened by hand.
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            for directory in (self.directory, self.part("live"), self.part("notify")):
                with suppress(FileExistsError):
                    os.mkdir(directory, 0o700)
        except OSError as error:
            raise self._unwritable(parent, error.strerror or "refused") from error
        if not os.access(self.path, os.R_OK | os.W_OK) or not os.access(parent, os.W_OK):
            raise self._unwritable(parent, "permission denied")

    def _unwritable(self, parent: str, reason: str) -> NotWritable:
        return NotWritable(
            f"{self.path} cannot be written ({reason}): SQLite needs write access to the file and "
            f"to {parent}"
        )

    def _refuse_network(self, parent: str) -> None:
        file_system_type = file_system(parent)
        if file_system_type is not None and is_network(file_system_type):
            raise NotWritable(
                f"{self.path} lies on a network file system ({file_system_type}), where SQLite's "
                "locks are not reliable: use a local disk, or a database server"
            )

    def sizes(self) -> dict[str, int]:
        """Sizes of the database and of its write-ahead log in bytes."""
        found: dict[str, int] = {}
        for name, path in (("database", self.path), ("wal", self.wal)):
            with suppress(OSError):
                found[name] = os.stat(path).st_size
        return found

    def remove(self) -> None:
        """Delete the database with all its files."""
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        self.remove_directory()

    def remove_directory(self) -> None:
        """Delete the directory beside the database."""
        for root, directories, names in os.walk(self.directory, topdown=False):
            for name in names:
                Path(root, name).unlink(missing_ok=True)
            for name in directories:
                with suppress(OSError):
                    os.rmdir(os.path.join(root, name))
        with suppress(OSError):
            os.rmdir(self.directory)


def is_network(file_system_type: str) -> bool:
    """Whether a file system of this kind lies on another machine."""
    return file_system_type.lower() in _NETWORK


def file_system(path: str, mounts: str | None = None) -> str | None:
    """The kind of file system a path lies on; None where the system does not tell.

    ``mounts`` is the text of the mount table, for tests.
    """
    if mounts is None:
        if not sys.platform.startswith("linux"):
            return None
        try:
            with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as table:
                mounts = table.read()
        except OSError:
            return None
    wanted = os.path.realpath(path)
    best, file_system_type = "", None
    for point, found in _mounted(mounts.splitlines()):
        inside = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        # A later mount on the same point hides an earlier one.
        if inside and len(point) >= len(best):
            best, file_system_type = point, found
    return file_system_type


def _mounted(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        fields = line.split(" ")
        if len(fields) >= 3:
            yield _unescaped(fields[1]), fields[2]


def _unescaped(point: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, char)
    return point
