"""The guard of one command: starts it, passes signals on, and leaves nothing of it behind.

A program of its own, run by file name with the standard library alone; see ``child_guard`` for the
other side. The guard is the parent of the command and, on Linux, the heir of every process the
command loses on the way, whatever session or group that process moved to. So it can end them all:
when it is told to, when the command itself ends, and when the worker is gone.

Words on the control pipe: ``T`` asks everybody to end, ``K`` or the end of the pipe kills them.
Lines on the report pipe: ``up PID``, or ``no ERRNO STAGE``; then ``end STATUS`` (negative: a
signal), when nobody is left.

It is one thread and forks before it has done anything else, so the fork is safe; and since it never
starts a thread, the parent-death signal of its child means the death of the guard.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

_MAX_ROUNDS: Final = 3_000
_ROUND_MS: Final = 5
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_IS_LINUX: Final = sys.platform == "linux"


class GuardedCommand:
    """What to start, as fields separated by NUL: no argument and no variable can hold one."""

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
    """Guard the command of the plan until nobody is left of it."""
    control, report, plan_file = map(int, sys.argv[1:4])
    for descriptor in (control, report, plan_file):
        os.set_inheritable(descriptor, False)
    with os.fdopen(plan_file, "rb") as file:
        plan = GuardedCommand(file.read())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    woken = _wake_on_child()
    if _stop_requested(control):
        _exit_unstarted(plan, report, "end -9")
    leader = _start(plan, report)
    _detach_streams()
    _report(report, f"up {leader}")
    status = GuardLoop(control, woken, leader).until_nobody_is_left()
    if plan.scratch:
        _remove(plan.scratch)
    _report(report, f"end {status}")
    os._exit(0)


class GuardLoop:
    """Waits for the command, for words of the worker, and for the end of either."""

    def __init__(self, control: int, woken: int, leader: int) -> None:
        self._control = control
        self._woken = woken
        self._leader = leader
        self._status: int | None = None
        self._poll = select.poll()
        self._poll.register(woken, select.POLLIN)

    def until_nobody_is_left(self) -> int:
        """The command's status; everything it started is gone by then."""
        self._poll.register(self._control, select.POLLIN)
        doomed = False
        while not doomed:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._control:
                    doomed = self._obey() or doomed
            self._pause(0)
            self._bury()
            doomed = doomed or self._status is not None
        self._poll.unregister(self._control)
        return self._end_all()

    def _obey(self) -> bool:
        try:
            words = os.read(self._control, 64)
        except OSError:
            words = b""
        if not words or b"K" in words:
            return True
        self._signal_group(signal.SIGTERM)
        for pid in _descendants(os.getpid()):
            if not _in_group(pid, self._leader):
                _send_signal(pid, signal.SIGTERM)
        return False

    def _end_all(self) -> int:
        # Each round kills whom it sees; whoever was born meanwhile is seen by the next.
        for _ in range(_MAX_ROUNDS):
            self._signal_group(signal.SIGKILL)
            for pid in _descendants(os.getpid()):
                _send_signal(pid, signal.SIGKILL)
            if self._bury():
                break
            self._pause(_ROUND_MS)
        return -signal.SIGKILL if self._status is None else self._status

    def _bury(self) -> bool:
        """Reap whoever is dead; whether no child is left."""
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

    def _pause(self, milliseconds: int) -> None:
        self._poll.poll(milliseconds)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._woken, 512):
                pass


def _start(plan: GuardedCommand, report: int) -> int:
    """Fork and run the command; its process id once it runs."""
    prctl = _prctl()
    if prctl is not None:
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    fault_r, fault_w = os.pipe()
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
            _set_limits(plan.limits)
            stage = "cwd"
            os.umask(plan.umask)
            os.chdir(plan.cwd)
            stage = "exec"
            _default_signals()
            os.execve(plan.path, plan.argv, plan.env)
        except OSError as error:
            os.write(fault_w, f"no {error.errno} {stage}".encode())
        except ValueError:
            os.write(fault_w, f"no 22 {stage}".encode())
        finally:
            os._exit(127)
    os.close(fault_w)
    fault = os.read(fault_r, 256)
    os.close(fault_r)
    if fault:
        os.waitpid(pid, 0)
        _exit_unstarted(plan, report, fault.decode())
    return pid


def _stop_requested(control: int) -> bool:
    # Stopped, or without a worker, before the command was even started.
    look = select.poll()
    look.register(control, select.POLLIN)
    return bool(look.poll(0))


def _exit_unstarted(plan: GuardedCommand, report: int, line: str) -> NoReturn:
    if plan.scratch:
        _remove(plan.scratch)
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

    for number, most in limits:
        hard = resource.getrlimit(number)[1]
        wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (wanted, wanted))


def _default_signals() -> None:
    # Python ignores some, the guard others, and what is ignored stays so in the command.
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
    # They are the command's; their readers must see the end when the command is gone.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


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
    """Everyone who descends from a process, as far as this system tells."""
    if not _IS_LINUX:
        return []
    told = os.path.exists(f"/proc/{pid}/task/{pid}/children")
    children = _children if told else _children_by_parent().get
    found: list[int] = []
    waiting = list(children(pid) or ())
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting.extend(children(one) or ())
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
    # For kernels that do not list children: one look at everybody.
    families: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError, ValueError):
            with open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
            families.setdefault(parent, []).append(int(name))
    return families


def _remove(folder: bytes) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
