"""Tells that a worker process on the same machine is dead, long before its lease expires.

A process binds an abstract Unix socket with a random name. The kernel frees the name when the
process ends, however it ends. Such names belong to one network namespace of one machine, so a
process stores where it is (boot id and namespace) with the name. Only a process of the same
namespace can tell that the name is free: then its owner is dead.

A lost connection, a stopped process or a cut network free no name. Processes on other machines, in
other containers or on other systems than Linux know nothing, and wait for the lease.
"""

import contextlib
import os
import socket
import weakref
from functools import cache
from pathlib import Path
from typing import Final

from forge_jobs.kit.entropy import Entropy

_PREFIX: Final = "\0forge-jobs/"
_SEPARATOR: Final = "/"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/net")

_sockets: "weakref.WeakSet[LivenessSocket]" = weakref.WeakSet()


class LivenessSocket:
    """The socket of one registration. ``machine`` is what to store; None: not known here."""

    def __init__(self, entropy: Entropy) -> None:
        self.machine: str | None = None
        self._socket: socket.socket | None = None
        namespace = _namespace()
        if namespace is None:
            return
        token = f"{entropy.bits(64):016x}{entropy.bits(64):016x}"
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            made.bind(_PREFIX + token)
        except OSError:
            made.close()
            return
        self._socket, self.machine = made, f"{namespace}{_SEPARATOR}{token}"
        _sockets.add(self)
        weakref.finalize(self, made.close)

    def close(self) -> None:
        """Free the name: the registration has ended."""
        if self._socket is not None:
            self._socket.close()


def is_dead(machine: str) -> bool:
    """Whether the process that stored this is certainly dead."""
    namespace, _, token = machine.rpartition(_SEPARATOR)
    if namespace != _namespace():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            # The name is free again when the probe is closed, before anybody else asks for it.
            probe.bind(_PREFIX + token)
        except OSError:
            return False
    return True


@cache
def _namespace() -> str | None:
    """The namespace of abstract sockets that this process is in."""
    with contextlib.suppress(OSError):
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
        if boot and _SEPARATOR not in boot:
            return f"{boot}{_SEPARATOR}{os.readlink(_NAMESPACE)}"
    return None


def _close_all() -> None:
    """In a forked child: an inherited socket would make a dead parent look alive."""
    for one in list(_sockets):
        one.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all)
