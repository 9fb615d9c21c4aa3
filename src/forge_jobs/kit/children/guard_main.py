"""The guard program of one command: starts it, forwards signals and kills all its descendants.

It runs as a program of its own, by file name and with the standard library only; ``guard`` is the
worker's side. The guard is the parent of the command and, on Linux, the subreaper of every orphan
that the command leaves, whatever session or process group the orphan has moved to. So it can kill
them all: on request, when the command exits, and when the worker is gone.

Control pipe: ``T`` sends SIGTERM to all of them, ``K`` or end of file sends SIGKILL.
Report pipe: ``started PID`` or ``failed ERRNO STAGE``; then ``exited STATUS`` (negative: a signal),
once no process is left.

The guard is single-threaded and forks before it does anything else, so the fork is safe. Because it
never starts a thread, the parent-death signal of its child means the death of the guard.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

_MAX_KILL_ROUNDS: Final = 3_000
_KILL_ROUND_MS: Final = 5
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_IS_LINUX: Final = sys.platform == "linux"


class GuardedCommand:
    """The command to start, decoded from fields that NUL characters separate: no argument and no
    variable can hold one."""

    def __init__(self, data: bytes) -> None:
        fields = data.split(b"\0")
        self.cwd, self.scratch = fields[0], fields[1]
        self.umask, limits, arguments = int(fields[2]), int(fields[3]), int(fields[4])
        rest = fields[5:]
        self.limits = [tuple(map(int, field.split(b":"))) for field in rest[:limits]]
        rest = rest[limits:]
        self.path, self.argv = rest[0], rest[1 : 1 + arguments]
        self.env: dict[bytes, bytes] = {}
        for field in rest[1 + arguments :]:
            name, _, value = field.partition(b"=")
            self.env[name] = value


def main() -> NoReturn:
    """Start the command and run until none of its processes is left."""
    control, report, command_file = map(int, sys.argv[1:4])
    for descriptor in (control, report, command_file):
        os.set_inheritable(descriptor, False)
    with os.fdopen(command_file, "rb") as file:
        command = GuardedCommand(file.read())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    child_events = _wake_on_child()
    if _stop_requested(control):
        _exit_unstarted(command, report, "exited -9")
    leader = _start(command, report)
    _detach_streams()
    _report(report, f"started {leader}")
    status = GuardLoop(control, child_events, leader).run()
    if command.scratch:
        _remove(command.scratch)
    _report(report, f"exited {status}")
    os._exit(0)


class GuardLoop:
    """Polls for exits of the command's processes and for commands of the worker."""

    def __init__(self, control: int, child_events: int, leader: int) -> None:
        self._control = control
        self._child_events = child_events
        self._leader = leader
        self._status: int | None = None
        self._poll = select.poll()
        self._poll.register(child_events, select.POLLIN)

    def run(self) -> int:
        """Run until no process of the command is left; the command's exit status."""
        self._poll.register(self._control, select.POLLIN)
        must_kill = False
        while not must_kill:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._control:
                    must_kill = self._read_control() or must_kill
            self._wait_for_child(0)
            self._reap()
            must_kill = must_kill or self._status is not None
        self._poll.unregister(self._control)
        return self._kill_all()

    def _read_control(self) -> bool:
        """Handle the worker's commands; whether everything must be killed now."""
        try:
            commands = os.read(self._control, 64)
        except OSError:
            commands = b""
        if not commands or b"K" in commands:
            return True
        self._signal_group(signal.SIGTERM)
        for pid in _descendants(os.getpid()):
            if not _in_group(pid, self._leader):
                _send_signal(pid, signal.SIGTERM)
        return False

    def _kill_all(self) -> int:
        # Each round kills the processes it finds. The next one finds those forked meanwhile.
        for _ in range(_MAX_KILL_ROUNDS):
            self._signal_group(signal.SIGKILL)
            for pid in _descendants(os.getpid()):
                _send_signal(pid, signal.SIGKILL)
            if self._reap():
                break
            self._wait_for_child(_KILL_ROUND_MS)
        return -signal.SIGKILL if self._status is None else self._status

    def _reap(self) -> bool:
        """Reap all exited children; whether none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._leader:
                self._status = os.waitstatus_to_exitcode(status)

    def _signal_group(self, number: int) -> None:
        if self._status is None or not _IS_LINUX:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._leader, number)

    def _wait_for_child(self, milliseconds: int) -> None:
        self._poll.poll(milliseconds)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._child_events, 512):
                pass


def _start(command: GuardedCommand, report: int) -> int:
    """Fork and exec the command; its process id once it runs."""
    prctl = _prctl()
    if prctl is not None:
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Close-on-exec: the read below ends without data when execve succeeds.
    failure_r, failure_w = os.pipe()
    guard = os.getpid()
    pid = os.fork()
    if pid == 0:
        stage = "start"
        try:
            os.setsid()
            if prctl is not None:
                prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
                if os.getppid() != guard:
                    os._exit(1)
            stage = "limits"
            _set_limits(command.limits)
            stage = "cwd"
            os.umask(command.umask)
            os.chdir(command.cwd)
            stage = "exec"
            _default_signals()
            os.execve(command.path, command.argv, command.env)
        except OSError as error:
            os.write(failure_w, f"failed {error.errno} {stage}".encode())
        except ValueError:
            os.write(failure_w, f"failed 22 {stage}".encode())
        finally:
            os._exit(127)
    os.close(failure_w)
    failure = os.read(failure_r, 256)
    os.close(failure_r)
    if failure:
        os.waitpid(pid, 0)
        _exit_unstarted(command, report, failure.decode())
    return pid


def _stop_requested(control: int) -> bool:
    # The worker stopped the command, or ended, before the command was started.
    poll = select.poll()
    poll.register(control, select.POLLIN)
    return bool(poll.poll(0))


def _exit_unstarted(command: GuardedCommand, report: int, line: str) -> NoReturn:
    if command.scratch:
        _remove(command.scratch)
    _report(report, line)
    os._exit(0)


def _prctl() -> "Callable[..., int] | None":
    if not _IS_LINUX:
        return None
    try:
        import ctypes

        return ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None


def _set_limits(limits: "list[tuple[int, ...]]") -> None:
    if not limits:
        return
    import resource

    for number, wanted in limits:
        hard = resource.getrlimit(number)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(number, (value, value))


def _default_signals() -> None:
    # Python ignores some signals and the guard others, and execve keeps ignored signals ignored.
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _wake_on_child() -> int:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return read


def _detach_streams() -> None:
    # The streams belong to the command: their readers must see end of file when it has exited.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def _report(report: int, line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(report, line.encode() + b"\n")


def _send_signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _in_group(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) == group
    except OSError:
        return True


def _descendants(pid: int) -> "list[int]":
    """All descendants of a process. Empty where there is no /proc."""
    if not _IS_LINUX:
        return []
    lists_children = os.path.exists(f"/proc/{pid}/task/{pid}/children")
    children = _children if lists_children else _children_by_parent().get
    found: list[int] = []
    unvisited = list(children(pid) or ())
    while unvisited:
        child = unvisited.pop()
        found.append(child)
        unvisited.extend(children(child) or ())
    return found


def _children(pid: int) -> "Iterable[int]":
    found: list[int] = []
    folder = f"/proc/{pid}/task"
    with contextlib.suppress(OSError):
        for task in os.listdir(folder):
            with contextlib.suppress(OSError), open(f"{folder}/{task}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
    return found


def _children_by_parent() -> "dict[int, list[int]]":
    # For kernels without the `children` file: one scan of all processes.
    by_parent: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError, ValueError):
            with open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
            by_parent.setdefault(parent, []).append(int(name))
    return by_parent


def _remove(folder: bytes) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
