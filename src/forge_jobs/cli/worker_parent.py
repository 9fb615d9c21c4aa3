"""The parent of worker processes: starts, watches, restarts and stops them.

No library but Python's own: it never imports the user's application, so that nothing an application
does can take the parent down, and it stays small. Each worker process holds one end of a socket
pair (``--control-fd``) and speaks JSON lines:

* worker to parent: ``{"up": HOST_ID}`` once it serves, ``{"beat": HOST_ID}`` from its I/O thread
  several times per lease, ``{"refused": WHY}`` when it can never start (a wrong application path);
* parent to worker: ``drain`` and ``stop`` (at once). The end of the pipe means drain, too: that is
  how workers learn of their parent's death.

A worker that is silent for a lease cannot run its I/O thread (the interpreter lock is held) and is
killed. A dead worker's successor is told its host id, so that its jobs are free at once.
"""

import json
import logging
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from forge_jobs.kit.children.process import ChildExit
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock

from .parent_signals import TERMINAL_SIGNALS, Wishes, reap_strays, signals_to

_LOG = logging.getLogger("forge_jobs.parent")

DRAINED: Final = 0
FAILED: Final = 1
CHILD_MODULE: Final = "forge_jobs.cli.worker_child"

_RESTART_FIRST_S: Final = 0.1
_MAX_RESTART_S: Final = 30.0
_HEALTHY_S: Final = 60.0
_MAX_STARTS: Final = 5
_STARTING_NOTE_S: Final = 30.0
_TURN_S: Final = 0.5
_AFTER_GRACE_S: Final = 1.8
_MAX_LINES: Final = 1 << 20


@dataclass(slots=True)
class _Worker:
    """One place for a worker process, through all its restarts."""

    number: int
    process: "subprocess.Popen[bytes] | None" = None
    control: socket.socket | None = None
    rest: bytes = b""
    host_id: str | None = None
    predecessor: str | None = None
    refusal: str | None = None
    started_at: float = 0.0
    heard_at: float = 0.0
    noted_at: float = 0.0
    start_at: float = 0.0
    failures: int = 0
    leaving: bool = False

    @property
    def name(self) -> str:
        return f"worker {self.number}" + (f" (pid {self.process.pid})" if self.process else "")


@dataclass(slots=True, kw_only=True)
class WorkerParent:
    """Runs until told to stop; ``run`` answers with the exit code."""

    child_args: Sequence[str]
    processes: int
    grace_s: float
    lease_s: float
    clock: Clock
    child_module: str
    wishes: Wishes = field(default_factory=Wishes)
    _workers: list[_Worker] = field(default_factory=list[_Worker])
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _wake: tuple[socket.socket, socket.socket] = field(default_factory=socket.socketpair)
    _stop_by: float | None = None
    _code: int = DRAINED
    _anyone_up: bool = False
    _rolling: list[_Worker] = field(default_factory=list[_Worker])
    _turn_at: float = 0.0

    def run(self) -> int:
        """Start the workers and look after them until the last one has gone."""
        self._workers = [_Worker(number) for number in range(1, self.processes + 1)]
        for end in self._wake:
            end.setblocking(False)
        self._selector.register(self._wake[0], selectors.EVENT_READ)
        with signals_to(self.wishes, self._wake[1]):
            try:
                while self._turn():
                    self._listen(self._wait_s())
            finally:
                self._kill_all()
                self._selector.close()
                for end in self._wake:
                    end.close()
        return self._code

    def _turn(self) -> bool:
        """One look at everything; False when there is nothing left to look after."""
        now = self.clock.mono()
        self._forgive_own_sleep(now)
        self._reap(now)
        self._obey(now)
        if self._stop_by is None:
            self._start_due(now)
            self._roll(now)
        self._kill_silent(now)
        return self._stop_by is None or any(worker.process for worker in self._workers)

    def _forgive_own_sleep(self, now: float) -> None:
        # Ctrl-Z and a suspended machine stop the parent as well: silence then proves nothing.
        if now - self._turn_at > 4 * _TURN_S:
            for worker in self._workers:
                worker.heard_at = now
        self._turn_at = now

    def _wait_s(self) -> float:
        now = self.clock.mono()
        times = [w.start_at for w in self._workers if w.process is None and self._stop_by is None]
        if self._stop_by is not None:
            times.append(self._stop_by)
        return max(0.0, min([_TURN_S, *(at - now for at in times)]))

    # ------------------------------------------------------------------------ starting and ending

    def _start_due(self, now: float) -> None:
        for worker in self._workers:
            if worker.process is None and worker.start_at <= now:
                self._start(worker, now)

    def _start(self, worker: _Worker, now: float) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", self.child_module, *self.child_args]
        command += ["--control-fd", str(theirs.fileno()), "--number", str(worker.number)]
        if worker.predecessor:
            command += ["--replaces", worker.predecessor]
        # Blocked until the worker has its own handlers, so that an early Ctrl-C is not its death.
        signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
        try:
            worker.process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        except OSError as error:
            ours.close()
            self._fail_start(worker, now, f"cannot be started: {error}")
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)
            theirs.close()
        ours.setblocking(False)
        worker.control, worker.rest, worker.host_id, worker.refusal = ours, b"", None, None
        worker.started_at = worker.heard_at = worker.noted_at = now
        self._selector.register(ours, selectors.EVENT_READ, worker)

    def _reap(self, now: float) -> None:
        for worker in self._workers:
            if worker.process is not None and worker.process.poll() is not None:
                self._read(worker, now)
                self._ended(worker, worker.process.returncode, now)
        reap_strays({worker.process.pid for worker in self._workers if worker.process})

    def _ended(self, worker: _Worker, status: int, now: float) -> None:
        name = worker.name
        self._close_control(worker)
        worker.process = None
        worker.predecessor = worker.host_id or worker.predecessor
        if self._stop_by is not None:
            return
        if worker.refusal is not None:
            self._refused(worker, now)
        elif worker.host_id is None:
            self._fail_start(worker, now, f"ended before it was up: {ChildExit(status)}")
        elif worker.leaving or status == 0:
            # Its jobs were handed back and its place in the store given up.
            worker.leaving, worker.predecessor, worker.start_at = False, None, now
        else:
            worker.failures = 0 if now - worker.started_at >= _HEALTHY_S else worker.failures
            delay_s = self._put_off(worker, now)
            _LOG.warning("%s died: %s; next start in %.1f s", name, ChildExit(status), delay_s)

    def _refused(self, worker: _Worker, now: float) -> None:
        if any(other.host_id and other.process for other in self._workers):
            delay_s = self._put_off(worker, now)
            _LOG.error("%s; next try in %.1f s", worker.refusal, delay_s)
        else:
            _LOG.error("%s", worker.refusal)
            self._give_up(now)

    def _fail_start(self, worker: _Worker, now: float, why: str) -> None:
        delay_s = self._put_off(worker, now)
        if not self._anyone_up and worker.failures >= _MAX_STARTS:
            _LOG.error("worker %d %s, %d times in a row", worker.number, why, worker.failures)
            self._give_up(now)
        else:
            _LOG.warning("worker %d %s; next start in %.1f s", worker.number, why, delay_s)

    def _put_off(self, worker: _Worker, now: float) -> float:
        worker.failures += 1
        delay_s = min(_RESTART_FIRST_S * 2 ** min(worker.failures - 1, 10), _MAX_RESTART_S)
        worker.start_at = now + delay_s
        return delay_s

    def _give_up(self, now: float) -> None:
        self._code = FAILED
        self._drain(now)

    # ----------------------------------------------------------------------------------- commands

    def _obey(self, now: float) -> None:
        if self.wishes.stops and self._stop_by is None:
            _LOG.info("stopping: running jobs get %g s to end", self.grace_s)
            self._drain(now)
        overdue = self._stop_by is not None and now >= self._stop_by
        if self.wishes.stops > 1 or overdue:
            left = [worker.name for worker in self._workers if worker.process]
            if left:
                self._code = FAILED
                _LOG.warning("killing %s", ", ".join(left))
            self._kill_all()
        if self.wishes.rolls and self._stop_by is None:
            self.wishes.rolls = 0
            _LOG.info("restarting the workers one by one")
            self._rolling = list(self._workers)

    def _drain(self, now: float) -> None:
        self._stop_by = now + self.grace_s + _AFTER_GRACE_S
        for worker in self._workers:
            self._tell(worker, b"drain\n")
            if worker.process is not None and worker.host_id is None:
                # Still importing the application: it holds no job and reads no command yet.
                worker.process.terminate()

    def _roll(self, now: float) -> None:
        """Exchange one worker after the other; the next only when all are up."""
        settled = all(w.process and w.host_id and not w.leaving for w in self._workers)
        if not self._rolling or not settled:
            return
        worker = self._rolling.pop(0)
        worker.leaving = True
        self._tell(worker, b"drain\n")

    def _tell(self, worker: _Worker, command: bytes) -> None:
        if worker.control is not None:
            with suppress(OSError):
                worker.control.send(command)

    def _kill_silent(self, now: float) -> None:
        for worker in self._workers:
            if worker.process is None:
                continue
            silent_s = now - worker.heard_at
            if worker.host_id is None:
                if now - worker.noted_at > _STARTING_NOTE_S:
                    worker.noted_at = now
                    _LOG.warning(
                        "%s is still starting after %.0f s", worker.name, now - worker.started_at
                    )
            elif silent_s > self.lease_s:
                _LOG.error("%s was silent for %.1f s: killing it", worker.name, silent_s)
                worker.heard_at = now
                worker.process.kill()

    def _kill_all(self) -> None:
        for worker in self._workers:
            if worker.process is not None:
                worker.process.kill()
                worker.process.wait()
                worker.process = None
            self._close_control(worker)

    # -------------------------------------------------------------------------------- what it says

    def _listen(self, wait_s: float) -> None:
        for key, _ in self._selector.select(wait_s):
            if key.data is None:
                with suppress(BlockingIOError):
                    self._wake[0].recv(4096)
            else:
                self._read(key.data, self.clock.mono())

    def _read(self, worker: _Worker, now: float) -> None:
        while worker.control is not None:
            try:
                data = worker.control.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._close_control(worker)
                return
            *lines, worker.rest = (worker.rest + data).split(b"\n")
            worker.rest = worker.rest[:_MAX_LINES]
            for line in lines:
                self._hear(worker, line, now)

    def _hear(self, worker: _Worker, line: bytes, now: float) -> None:
        try:
            said: dict[str, Any] = json.loads(line)
        except ValueError:
            _LOG.warning("%s said something that is not JSON", worker.name)
            return
        worker.heard_at = now
        if "up" in said:
            worker.host_id, worker.predecessor = str(said["up"]), None
            self._anyone_up = True
            _LOG.info("%s is up", worker.name)
            if self._stop_by is not None:
                self._tell(worker, b"drain\n")
        elif "beat" in said and worker.host_id is not None:
            worker.host_id = str(said["beat"])
        elif "refused" in said:
            worker.refusal = str(said["refused"])

    def _close_control(self, worker: _Worker) -> None:
        if worker.control is not None:
            self._selector.unregister(worker.control)
            worker.control.close()
            worker.control = None


def run_parent(
    child_args: Sequence[str],
    *,
    processes: int = 1,
    grace_s: float = 20.0,
    lease_s: float = 15.0,
    clock: Clock = SYSTEM_CLOCK,
    child_module: str = CHILD_MODULE,
) -> int:
    """Run ``processes`` workers with these arguments until a signal ends them.

    The answer is the exit code: 0 drained, 1 a worker could not start or had to be killed.
    ``child_args`` begins with the application's path. Call it on the main thread.
    """
    parent = WorkerParent(
        child_args=child_args,
        processes=processes,
        grace_s=grace_s,
        lease_s=lease_s,
        clock=clock,
        child_module=child_module,
    )
    return parent.run()
